"""Downloads of files that a document lists: ranges in parallel, resumed, proven.

A file that is not whole has the suffix `.part`. It is only ever written from its beginning to its
end, so that its length says what is there, also after a kill; whether that is right, its SHA-256
says at the end, or the checksums that a segment has of its own.
"""

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch_model_store.cache_entries import sync
from anabranch_model_store.full_disks import is_disk_full
from anabranch_model_store.hashing import file_sha256
from anabranch_model_store.sources.remote_folders import RemoteFolder
from anabranch_runtime.store import Segment
from anabranch_wire.errors import Corrupt, Unavailable, Unproven, Unsupported

__all__ = ["Download", "Downloads", "missing_bytes"]

_PARALLEL: Final = 8
_BLOCK: Final = 8 << 20
_SPARE: Final = 64 << 20
"""What the disk keeps free."""
_PART: Final = ".part"


@dataclass(frozen=True, slots=True)
class Download:
    """A file to have on this machine.

    Attributes:
        remote: path of it in the remote folder.
        path: where it is to lie.
        bytes: its size.
        sha256: of its bytes; None for a segment, which has checksums of its own.
    """

    remote: str
    path: Path
    bytes: int
    sha256: str | None

    @property
    def part(self) -> Path:
        """Where it lies until it is whole."""
        return self.path.with_name(self.path.name + _PART)


@dataclass(frozen=True, slots=True)
class _Block:
    download: Download
    begin: int
    end: int


class Downloads:
    """Downloads from one remote folder. Used by one thread; starts others while it works.

    Args:
        remote: the folder.
        block_bytes: how much is asked for at a time.
        parallel: how many are asked for at the same time.
    """

    def __init__(
        self, remote: RemoteFolder, block_bytes: int = _BLOCK, parallel: int = _PARALLEL
    ) -> None:
        self._remote = remote
        self._block_bytes = block_bytes
        self._parallel = parallel

    def run(self, files: Sequence[Download], on_bytes: Callable[[int, int], None]) -> None:
        """Bring files onto this machine; those that are there, byte for byte, stay.

        Args:
            files: which.
            on_bytes: told how many bytes of how many are there.

        Raises:
            Unproven: what the store sends is missing, shorter, or another than the document says.
            Unavailable: the store does not answer, or the disk has no room; says which.
        """
        total = sum(one.bytes for one in files)
        with _writing():
            missing = [one for one in files if not _is_there(one)]
            resumed = {one for one in missing if _resume(one)}
            _check_room(missing)
            done = total - sum(one.bytes - _size(one.part) for one in missing)
            on_bytes(done, total)
            with ThreadPoolExecutor(self._parallel) as pool:
                failed = self._fill(pool, missing, lambda more: on_bytes(done + more, total))
                for one in failed:  # what was there from before may be what is wrong
                    one.part.unlink(missing_ok=True)
                    if one not in resumed:
                        raise _differs(one)
                on_bytes(total - sum(one.bytes for one in failed), total)
                for one in self._fill(pool, failed, lambda more: None):
                    one.part.unlink(missing_ok=True)
                    raise _differs(one)
            for folder in {one.path.parent for one in missing}:
                sync(folder)
            on_bytes(total, total)

    def _fill(
        self, pool: ThreadPoolExecutor, files: Sequence[Download], on_bytes: Callable[[int], None]
    ) -> list[Download]:
        """Fill and finish files; returns those that are not what they should be."""
        waiting: deque[tuple[_Block, Future[bytes | None]]] = deque()
        blocks = self._blocks(files)
        done = 0
        failed: list[Download] = []
        for one in files:
            one.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if one.bytes == _size(one.part):  # nothing of it is to be read
                one.part.touch()
                failed.extend(_finish(one))
        try:
            while True:
                while len(waiting) < self._parallel and (block := next(blocks, None)) is not None:
                    waiting.append((block, pool.submit(self._read, block)))
                if not waiting:
                    return failed
                block, read = waiting.popleft()
                data = read.result()
                one = block.download
                if data is None:
                    raise Unproven(
                        f"{one.path.name}: missing; expected {one.bytes} bytes in "
                        f"{self._remote.url}/{one.remote}: it is not there yet, or was taken away"
                    )
                if len(data) != block.end - block.begin:
                    raise Unproven(
                        f"{one.path.name}: expected {one.bytes} bytes, found "
                        f"{block.begin + len(data)} in {self._remote.url}/{one.remote}"
                    )
                with one.part.open("ab") as file:
                    file.write(data)
                done += len(data)
                on_bytes(done)
                if block.end == one.bytes:
                    failed.extend(_finish(one))
        finally:
            for _, read in waiting:
                read.cancel()

    def _blocks(self, files: Sequence[Download]) -> Iterator[_Block]:
        for one in files:
            for begin in range(_size(one.part), one.bytes, self._block_bytes):
                yield _Block(one, begin, min(begin + self._block_bytes, one.bytes))

    def _read(self, block: _Block) -> bytes | None:
        return self._remote.read_range(block.download.remote, block.begin, block.end)


def missing_bytes(files: Sequence[Download]) -> int:
    """Return how many bytes of files are not on this machine yet."""
    return sum(one.bytes - _size(one.part) for one in files if _size(one.path) != one.bytes)


def _is_there(one: Download) -> bool:
    if not one.path.is_file():
        return False
    if _size(one.path) == one.bytes and _is_right(one, one.path):
        return True
    one.path.unlink()
    return False


def _resume(one: Download) -> bool:
    """Whether something is there to go on with."""
    if _size(one.part) > one.bytes:
        one.part.unlink()
    return _size(one.part) > 0


def _finish(one: Download) -> list[Download]:
    """Give a file its name, if it is right."""
    sync(one.part)
    if not _is_right(one, one.part):
        return [one]
    one.part.rename(one.path)
    return []


def _is_right(one: Download, path: Path) -> bool:
    """Whether a file that is as long as it should be has the right bytes."""
    if one.sha256 is not None:
        return file_sha256(path) == one.sha256
    try:
        Segment.open(path).verify()
    except Corrupt:
        return False
    except Unsupported:
        pass  # whoever reads it says so
    return True


def _differs(one: Download) -> Unproven:
    expected = "a segment that is whole" if one.sha256 is None else f"sha256 {one.sha256}"
    return Unproven(
        f"{one.path.name}: expected {expected}, found another in {one.remote}: it was damaged on "
        "its way, or changed after it was published"
    )


def _check_room(files: Sequence[Download]) -> None:
    if not files:
        return
    needed = missing_bytes(files)
    folder = next(one for one in files[0].path.parents if one.is_dir())
    free = shutil.disk_usage(folder).free
    if needed + _SPARE > free:
        raise Unavailable(
            f"cache folder: {needed} bytes are to be fetched, and its disk has {free} free: make "
            "room there, or name another cache_dir"
        )


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = "its disk is full" if is_disk_full(error) else str(error.strerror or error)
        raise Unavailable(f"cache folder: {what}") from None
