"""A delta in the making, and its one way into the repository.

Its files are durable before its document is, and the document is created exclusively. So a
publisher that dies leaves a whole delta or none, and of racing publishers one has each number. The
attempt's name tells an own document from that of another: whatever was lost on the way, what is
published is known from the repository alone.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Final, Literal

from anabranch_publish import contents
from anabranch_publish.changes import Changes
from anabranch_publish.cleaning import STALE_S, clean_number
from anabranch_publish.contents import Contents, Sources
from anabranch_publish.published_deltas import PublishedDeltas
from anabranch_publish.storage import Upload
from anabranch_publish.stored_numbers import Array, Keys
from anabranch_wire import delta
from anabranch_wire.delta import Base, Delta
from anabranch_wire.document_fields import LAST_DELTA
from anabranch_wire.errors import Conflict

__all__ = ["Attempt", "DeltaDraft", "DeltaFacts"]

_LOOKED_AT: Final = 100
"""Newest deltas among which one that an earlier process published is looked for."""


@dataclass(frozen=True, slots=True)
class DeltaFacts:
    """What a delta says of itself.

    Attributes:
        attempt: 16 hexadecimal digits.
        step: training step it was taken at.
        event_time: time of the newest training event in it, in seconds since 1970.
        replaces_from: it holds everything of the deltas from that one on; None: only itself.
        after: the newest delta when it was begun, which it must follow; None: whichever is newest.
        known_attempt: whether an earlier process may have published this very attempt.
    """

    attempt: str
    step: int | None = None
    event_time: float | None = None
    replaces_from: int | None = None
    after: int | None = None
    known_attempt: bool = False


class Attempt:
    """Files that become a delta; for one thread."""

    def __init__(
        self, deltas: PublishedDeltas, facts: DeltaFacts, sources: Callable[[], Sources]
    ) -> None:
        self._deltas = deltas
        self._facts = facts
        self._sources = sources
        self._upload: Upload | None = None
        self._contents: Contents | None = None
        self._tried = 0
        self._published: Delta | None = None

    @property
    def published(self) -> Delta | None:
        """What it became; None as long as that is nothing."""
        return self._published

    @property
    def has_files(self) -> bool:
        """Whether files of it are to be removed, unless it is published."""
        return self._upload is not None

    def publish(self) -> Delta:
        """See `DeltaDraft.publish`."""
        if self._published is None:
            self._published = self._found() or self._create()
            self.close()
        return self._published

    def close(self) -> None:
        """Remove the files unless they are published."""
        if self._upload is None:
            return
        upload, self._upload = self._upload, None
        upload.close(keep=self._published is not None or self._found() is not None)

    def _found(self) -> Delta | None:
        """Return the delta if an earlier try had published it, whatever it heard of that."""
        found: Delta | None = None
        if self._tried:
            found = self._deltas.document(self._tried)
        elif self._facts.known_attempt:
            found = self._deltas.attempt(self._facts.attempt, _LOOKED_AT)
        if found is None or found.attempt != self._facts.attempt:
            return None
        self._deltas.storage.settle(self._deltas.document_path(found.sequence))
        return found

    def _create(self) -> Delta:
        identity, _ = self._deltas.base()
        newest = self._deltas.newest()
        self._check_newest(newest, identity)
        sequence = newest + 1
        document = self._document(sequence, identity, self._files_at(sequence))
        data = delta.encode(document)
        self._tried = sequence
        try:
            self._deltas.storage.create(self._deltas.document_path(sequence), data)
        except FileExistsError:
            found = self._found()
            if found is not None:
                return found
            raise Conflict(self._taken(sequence)) from None
        return document

    def _files_at(self, sequence: int) -> Contents:
        """Return the files, which are then durable where the delta of that number has them."""
        path = self._deltas.attempt_folder(sequence, self._facts.attempt)
        if self._upload is not None and self._contents is not None:
            if self._tried != sequence:
                self._upload.move(path)
                self._upload.send()
            return self._contents
        # What can be refused is refused before anything is written.
        sources = self._sources()
        delta.encode(self._document(sequence, f"sha256:{'0' * 64}", _NOTHING))
        clean_number(self._deltas, sequence, STALE_S, time.time())
        self._upload = self._deltas.storage.begin(path)
        self._tried = 0
        try:
            self._contents = contents.write(self._upload.folder, sources)
            self._upload.send()
        except BaseException:
            upload, self._upload = self._upload, None
            upload.close(keep=False)
            raise
        return self._contents

    def _document(self, sequence: int, identity: str, held: Contents) -> Delta:
        first = self._facts.replaces_from or sequence
        return Delta(
            format=1,
            kind="delta",
            model=self._deltas.storage.model,
            version=self._deltas.version,
            sequence=sequence,
            replaces_from=first,
            base=Base(identity=identity, previous=sequence - 1),
            attempt=self._facts.attempt,
            producer=f"anabranch-client {metadata.version('anabranch-client')}",
            created=time.time(),
            step=self._facts.step,
            event_time=self._facts.event_time,
            tables=held.tables,
            dense=held.dense,
            item_tables=held.item_tables,
            golden=held.golden,
            files=held.files,
        )

    def _check_newest(self, newest: int, identity: str) -> None:
        if self._facts.after is not None and newest != self._facts.after:
            raise Conflict(
                f"delta {self._facts.after + 1} of version {self._deltas.version} of "
                f"{self._deltas.storage.model} is taken: this one replaces all from "
                f"{self._facts.replaces_from} on and does not know it; make it anew"
            )
        if not newest:
            return
        if newest >= LAST_DELTA:
            raise Conflict(
                f"delta {newest} of version {self._deltas.version} of "
                f"{self._deltas.storage.model} has the last number that there is, and none can "
                "follow it: publish a new version; or, if nobody has published so many, remove "
                f"{self._deltas.storage.url}/{self._deltas.folder(newest)}"
            )
        before = self._deltas.document(newest)
        if before is not None and before.base.identity != identity:
            raise Conflict(
                f"delta {newest} of version {self._deltas.version} is of base "
                f"{before.base.identity}, the version is now {identity}: it was replaced under its "
                "deltas, and no server applies them; publish a new version"
            )

    def _taken(self, sequence: int) -> str:
        about = (
            f"delta {sequence} of version {self._deltas.version} of "
            f"{self._deltas.storage.model} is taken"
        )
        if self._deltas.document(sequence) is None:
            return (
                f"{about} by a publisher that has not finished: if none is at work, remove "
                f"{self._deltas.storage.url}/{self._deltas.folder(sequence)}"
            )
        if self._facts.after is not None:
            return f"{about}: this one replaces earlier deltas and does not know it; make it anew"
        return f"{about}: publish() again takes the next number"


_NOTHING = Contents((), None, (), (), ())


class DeltaDraft:
    """A delta in the making; `Publisher.delta` begins one. For one thread.

    What it is told is copied. Of a key that is told of twice, the last call counts, also where one
    sets its row and the other deletes it; `dense` of a table's name is a new table, and drops rows
    that were told before.
    """

    def __init__(
        self,
        deltas: PublishedDeltas,
        facts: DeltaFacts,
        changes: Changes,
        on_begun: Callable[["DeltaDraft"], None],
        on_published: Callable[[Delta], None],
    ) -> None:
        self._changes = changes
        self._on_begun = on_begun
        self._on_published = on_published
        self._settled = False
        self._attempt = Attempt(deltas, facts, lambda: changes.sources(deltas.base()[1]))

    @property
    def published(self) -> Delta | None:
        """The document, once it is published."""
        return self._attempt.published

    @property
    def has_files(self) -> bool:
        """Whether it left files in the repository that no document names yet."""
        return self._attempt.has_files

    def upsert(
        self, table: str, keys: Keys, rows: Array, *, dtype: Literal["bf16"] | None = None
    ) -> None:
        """Set rows, whether or not their keys have some.

        Args:
            table: its name; always the same one of its aliases.
            keys: [n] integers of 64 bits, signed or not; of a table that the graph indexes by row
                number, that number.
            rows: [n, dim] float32, float16 or bfloat16 (of `ml_dtypes` or PyTorch).
            dtype: "bf16" where `rows` holds its bits as uint16.

        Raises:
            InvalidInput: a shape or datatype is refused, or a row has a NaN or an infinity.
            Conflict: `publish` was called: what it publishes is settled.
        """
        self._check_open()
        self._changes.upsert(table, keys, rows, dtype)

    def delete(self, table: str, keys: Keys) -> None:
        """Take rows out; keys that have none are no error.

        Raises:
            InvalidInput: the keys are no integers.
            Conflict: `publish` was called: what it publishes is settled.
        """
        self._check_open()
        self._changes.delete(table, keys)

    def dense(self, weights: Mapping[str, Array], complete: bool = False) -> None:
        """Set whole weights.

        Args:
            weights: name of the initializer in the version's ONNX file -> all of it.
            complete: whether, with what was told before, these are all dense weights.

        Raises:
            InvalidInput: a datatype is refused, or a weight has a NaN or an infinity.
            Conflict: `publish` was called: what it publishes is settled.
        """
        self._check_open()
        self._changes.dense(weights, complete=complete)

    def publish(self, retries: int = 0) -> int:
        """Publish it; it is durable when this returns. Returns its number.

        May be called again after any failure, and publishes once: what an earlier call got done
        without hearing of it is found in the repository.

        Args:
            retries: how many further numbers to try where another publisher takes one. The default
                is none, because deltas of two trainers may overwrite each other's rows.

        Raises:
            Conflict: another publisher has taken its number (calling again takes the next one), or
                the version is not what the deltas before were made for.
            NotFound: the version, or a file that was named, is not there.
            InvalidInput: a table, a number or a file is refused; nothing was written.
            Unsupported: the file system cannot create a file exclusively.
            OSError: the file system refused, as when it is full.
        """
        self._settled = True
        self._on_begun(self)
        while True:
            before = self._attempt.published
            try:
                document = self._attempt.publish()
            except Conflict:
                if retries < 1:
                    raise
                retries -= 1
                continue
            if before is None:
                self._on_published(document)
            return document.sequence

    def close(self) -> None:
        """Remove what lies in the repository of it, unless it is published."""
        self._attempt.close()

    def _check_open(self) -> None:
        if self._settled:
            raise Conflict("publish() was called: what it publishes is settled; begin a new delta")
