"""Waiting at start for version folders that somebody is still copying into place."""

import threading
import time
from collections.abc import Iterable
from typing import Final

from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.settling import Stillness, is_settled, list_files, observe
from anabranch_wire.errors import AnabranchError

__all__ = ["complete_versions", "restless_models"]

_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.25


def restless_models(folders: Iterable[ModelFolder], settle_s: float) -> tuple[str, ...]:
    """Return the names of models with a version that `complete_versions` would wait for."""
    return tuple(
        folder.name
        for folder in folders
        if not all(
            version.published or _is_still(version, number, {}, settle_s)
            for number, version in folder.versions.items()
        )
    )


def complete_versions(
    folder: ModelFolder, settle_s: float, stopping: threading.Event
) -> frozenset[int]:
    """Return the versions of a model whose files are all there.

    A version with a manifest is complete; one without must have been still for `settle_s`, and is
    waited for, longer than that only by a patience of half a minute. Blocks; any thread.

    Args:
        folder: of the model.
        settle_s: how long a folder must not have changed.
        stopping: when set, waiting ends.
    """
    complete = {number for number, version in folder.versions.items() if version.published}
    waiting = {n: version for n, version in folder.versions.items() if not version.published}
    seen: dict[int, Stillness] = {}
    end_s = time.monotonic() + settle_s + _PATIENCE_S
    while waiting:
        for number, version in tuple(waiting.items()):
            if _is_still(version, number, seen, settle_s):
                complete.add(number)
                del waiting[number]
        if not waiting or time.monotonic() > end_s or stopping.wait(min(_LOOK_S, settle_s)):
            break
    return frozenset(complete)


def _is_still(
    version: VersionFolder, number: int, seen: dict[int, Stillness], settle_s: float
) -> bool:
    """Look once more; `seen` keeps what was seen before."""
    try:
        listing = list_files(version.path)
    except AnabranchError:
        return True  # loading it will say what is wrong
    now_s = time.monotonic()
    previous = seen.get(number)
    seen[number] = observe(
        listing, previous, now_s=now_s, wall_s=time.time(), at_start=previous is None
    )
    return is_settled(seen[number], now_s=now_s, settle_s=settle_s)
