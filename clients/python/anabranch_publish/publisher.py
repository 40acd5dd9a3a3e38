"""What a trainer holds: the publisher of one model's versions and deltas."""

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self, Unpack

from anabranch_publish import cleaning, compaction
from anabranch_publish.changes import Changes
from anabranch_publish.contents import Sources
from anabranch_publish.drafts import Attempt, DeltaDraft, DeltaFacts
from anabranch_publish.notices import Notices
from anabranch_publish.published_deltas import PublishedDeltas
from anabranch_publish.storage import open_storage
from anabranch_publish.versions import PublishedVersion, VersionParts, publish_version
from anabranch_wire.delta import Delta
from anabranch_wire.errors import Conflict, InvalidInput
from anabranch_wire.names import parse_version

__all__ = ["Publisher"]

_ATTEMPT: Final = re.compile(r"[0-9a-f]{16}")
_DAY_S: Final = 86400.0
_COMPACTIONS: Final = 5
"""How often deltas are merged anew because others come in between."""


class Publisher:
    """Publishes into one model's folder; as a context manager it takes away what came to nothing.

    Any number of processes may publish into one version, each with publishers of its own. For one
    thread.
    """

    def __init__(
        self,
        model_url: str | Path,
        version: int | None = None,
        *,
        notify: str | Sequence[str] = (),
        storage_options: Mapping[str, object] | None = None,
    ) -> None:
        """Open a model's folder; nothing is read or written yet.

        Args:
            model_url: the folder, or a URL that fsspec knows; its last part is the model's name.
            version: whose deltas to publish; None for a publisher of versions.
            notify: `http://HOST:PORT` of admin ports that are told of what was published. That
                they cannot be told is logged, and fails nothing.
            storage_options: of the URL's file system, as fsspec takes them.

        Raises:
            InvalidInput: the URL, the model's name or the version is refused.
            Unsupported: the packages for such a URL are not installed.
        """
        self._place = model_url
        self._options = dict(storage_options or {})
        self._storage = open_storage(model_url, self._options)
        self._version = None if version is None else parse_version(str(version))
        self._notices = Notices(notify, self._storage.model)
        self._drafts: list[DeltaDraft] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take away the files of deltas that could not be published."""
        drafts, self._drafts = self._drafts, []
        for draft in drafts:
            draft.close()

    def delta(
        self,
        *,
        step: int | None = None,
        event_time: float | None = None,
        golden: Sequence[str | Path] = (),
        item_tables: Mapping[str, str | Path] | None = None,
        replaces_from: int | None = None,
        attempt: str | None = None,
    ) -> DeltaDraft:
        """Begin a delta; nothing is written before its `publish`.

        Args:
            step: training step it is taken at.
            event_time: time of the newest training event in it, in seconds since 1970.
            golden: .json files with requests that servers check before they switch to it.
            item_tables: item table -> .parquet file that takes its place.
            replaces_from: it holds everything of the deltas from that one on.
            attempt: 16 hexadecimal digits that a trainer knows again after it was killed, such as
                a digest of its run and step: a delta that it had published comes out of `publish`
                instead of a second one.

        Raises:
            InvalidInput: no version was named, or a name or number is refused.
            NotFound, OSError: with `replaces_from`, the version cannot be read.
        """
        deltas = self._deltas()
        if attempt is not None and _ATTEMPT.fullmatch(attempt) is None:
            raise InvalidInput(f"attempt {attempt[:40]!r}: expected 16 of 0-9 a-f")
        after = None
        if replaces_from is not None:
            after = deltas.newest()
            if not 1 <= replaces_from <= after + 1:
                raise InvalidInput(
                    f"replaces_from {replaces_from}: expected 1 to {after + 1}, the next delta"
                )
        facts = DeltaFacts(
            attempt=attempt or secrets.token_hex(8),
            step=step,
            event_time=event_time,
            replaces_from=replaces_from,
            after=after,
            known_attempt=attempt is not None,
        )
        items = {name: Path(path) for name, path in (item_tables or {}).items()}
        changes = Changes(items, tuple(Path(path) for path in golden))
        return DeltaDraft(deltas, facts, changes, self._begun, lambda _: self._notices.send())

    def newest(self) -> Delta | None:
        """Return the newest delta's document, as to learn at which step to go on; None: no delta.

        Raises:
            InvalidInput, Unsupported: it is malformed, or newer than this release reads.
            OSError: the file system refused.
        """
        return self._deltas().newest_document()

    def compact(self, upto: int | None = None, *, replaces_from: int = 1) -> int:
        """Publish one delta that does what all from `replaces_from` on did; returns its number.

        Where others publish meanwhile, it is made anew with theirs.

        Args:
            upto: what must be the newest delta; None: whichever is.
            replaces_from: the first delta that it replaces.

        Raises:
            Conflict: `upto` is not the newest delta, or others go on publishing.
            NotFound: there is no delta to merge, or one that is needed is gone.
            Corrupt: a file of theirs is missing or damaged.
            OSError: the file system refused.
        """
        deltas = self._deltas()
        for _ in range(_COMPACTIONS):
            newest = deltas.newest()
            if upto is not None and newest != upto:
                raise Conflict(f"delta {newest} is the newest one, not {upto}")
            if newest < replaces_from:
                raise InvalidInput(
                    f"replaces_from {replaces_from}: the newest delta is {newest}; there is "
                    "nothing to merge"
                )
            chain = deltas.chain(replaces_from)
            facts = DeltaFacts(
                attempt=secrets.token_hex(8),
                step=next((d.step for d in chain if d.step is not None), None),
                event_time=next((d.event_time for d in chain if d.event_time is not None), None),
                replaces_from=min(replaces_from, chain[-1].replaces_from),
                after=newest,
            )
            with compaction.merged(deltas, chain) as sources:
                attempt = Attempt(deltas, facts, partial(_same, sources))
                try:
                    document = attempt.publish()
                except Conflict:
                    if upto is not None or deltas.newest() == newest:
                        raise
                    continue
                finally:
                    attempt.close()
            self._notices.send()
            return document.sequence
        raise Conflict(
            f"{_COMPACTIONS} times others published while deltas were merged: let publishers rest, "
            "or merge fewer with replaces_from"
        )

    def prune(self, keep: int = 0, *, age_s: float = _DAY_S) -> list[int]:
        """Remove deltas that a later one replaces; returns their numbers.

        A server cannot go back to one of them any more but from memory.

        Args:
            keep: how many of them stay, the newest ones.
            age_s: how long what replaces them must have been there, for all servers to have it.

        Raises:
            InvalidInput, Unsupported: a document is malformed, or newer than this release reads.
            OSError: the file system refused.
        """
        return cleaning.prune(self._deltas(), keep, age_s, time.time())

    def clean(self, *, stale_s: float = cleaning.STALE_S) -> int:
        """Remove the files of publishers that were killed; returns how many attempts.

        Args:
            stale_s: how long nothing has changed in them. What a publisher on this machine is at
                work on stays, whatever its age.

        Raises:
            OSError: the file system refused.
        """
        return cleaning.clean(self._deltas(), stale_s, time.time())

    def publish_version(
        self, model_onnx: str | Path, version: int | None = None, **parts: Unpack[VersionParts]
    ) -> PublishedVersion:
        """Publish a version; as `anabranch_publish.publish_version`, and tells the servers."""
        published = publish_version(
            self._place, model_onnx, version=version, storage_options=self._options, **parts
        )
        self._notices.send()
        return published

    def _begun(self, draft: DeltaDraft) -> None:
        """Keep a draft that is about to have files; of others there is nothing to take away."""
        others = [each for each in self._drafts if each is not draft and each.has_files]
        self._drafts = [*others, draft]

    def _deltas(self) -> PublishedDeltas:
        if self._version is None:
            raise InvalidInput("which version? Publisher(..., version=N) publishes deltas of it")
        return PublishedDeltas(self._storage, self._version)


def _same(sources: Sources) -> Sources:
    return sources
