"""Deltas as a publisher makes them, brought into a repository as a fault would leave them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from anabranch_publish import DeltaDraft, Publisher
from anabranch_publish.tensor_files import adopt_file

__all__ = ["Damage", "DeltaForge", "with_tensors"]

Damage = Callable[[Path, dict[str, Any]], None]
"""Spoils the folder of an attempt, and the document that will name it."""


class DeltaForge:
    """Publishes deltas of a version where no server looks, and brings them to where one does.

    Args:
        version: the folder that a server watches.
        workshop: an empty folder.
    """

    def __init__(self, version: Path, workshop: Path) -> None:
        self._version = version
        self._folder = workshop / version.parent.name
        shutil.copytree(version, self._folder / version.name)

    def make(self, change: Callable[[DeltaDraft], None]) -> int:
        """Publish the next delta where no server sees it; returns its number."""
        with Publisher(self._folder, version=int(self._version.name)) as publisher:
            draft = publisher.delta()
            change(draft)
            return draft.publish()

    def bring(self, sequence: int, damage: Damage | None = None) -> None:
        """Put it where the server looks, its document last; what lay there is replaced."""
        place = Path("deltas") / f"{sequence:08}"
        source = self._folder / self._version.name / place
        document = json.loads((source / "delta.json").read_bytes())
        target = self._version / place
        target.mkdir(parents=True, exist_ok=True)
        attempt = target / document["attempt"]
        shutil.rmtree(attempt, ignore_errors=True)
        shutil.copytree(source / document["attempt"], attempt)
        if damage is not None:
            damage(attempt, document)
        beside = target / ".delta.json"
        beside.write_text(json.dumps(document))
        beside.replace(target / "delta.json")


def with_tensors(name: str, change: Callable[[dict[str, np.ndarray]], None]) -> Damage:
    """Return what rewrites tensors of a file, in such a way that the document says so.

    Args:
        name: of the file.
        change: changes the tensors in place.
    """

    def damage(attempt: Path, document: dict[str, Any]) -> None:
        tensors = load_file(attempt / name)
        change(tensors)
        save_file(tensors, attempt / name)
        listed = adopt_file(attempt, name)
        for file in document["files"]:
            if file["path"] == name:
                file.update(bytes=listed.bytes, sha256=listed.sha256)

    return damage
