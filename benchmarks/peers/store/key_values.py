"""Key-value stores that hold rows as bytes: LMDB, RocksDB, Redis; each answers batches of keys."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lookup_material import aligned
from peers.store import Missing, peer

__all__ = ["KEY_VALUE_STORES", "Answer", "Contents", "key_bytes"]

Answer = Callable[[Sequence[Sequence[bytes]]], NDArray[np.float32]]
"""Answers batches of keys, one after another; returns the rows of the last one."""


class Contents:
    """Keys and rows to be held.

    Attributes:
        keys: (rows,) bytes, as they are sorted in a tree.
        rows: (rows, dim).
    """

    def __init__(self, keys: NDArray[np.uint64], rows: NDArray[np.float32]) -> None:
        order = np.argsort(keys)
        self.keys = key_bytes(keys[order])
        self.rows = rows[order]

    def chunks(self, rows: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield pairs, so many at a time, by rising key."""
        for begin in range(0, len(self.keys), rows):
            values = (row.tobytes() for row in self.rows[begin : begin + rows])
            yield list(zip(self.keys[begin : begin + rows], values, strict=False))


_CHUNK_ROWS: Final = 20_000
_START_S: Final = 10.0


def key_bytes(keys: NDArray[np.uint64]) -> list[bytes]:
    """Return keys (n,) as the stores are told them: the most significant byte first."""
    return [key.to_bytes(8, "big") for key in keys.tolist()]


@contextmanager
def _lmdb(folder: Path, contents: Contents) -> Iterator[Answer]:
    """LMDB, memory-mapped, a `get` for each key in one transaction a batch."""
    lmdb = peer("lmdb")
    size = 4 * contents.rows.nbytes + (64 << 20)
    with lmdb.open(str(folder), map_size=size, sync=False, writemap=True) as environment:
        for pairs in contents.chunks(_CHUNK_ROWS):
            with environment.begin(write=True) as change:
                change.cursor().putmulti(pairs, append=True)

        def answer(batches: Sequence[Sequence[bytes]]) -> NDArray[np.float32]:
            out = aligned(len(batches[0]), contents.rows.shape[1])
            for batch in batches:
                with environment.begin(buffers=True) as snapshot:
                    _fill(out, [snapshot.get(key) for key in batch])
            return out

        yield answer


@contextmanager
def _rocksdb(folder: Path, contents: Contents) -> Iterator[Answer]:
    """RocksDB through rocksdict, compacted, cached, a multi-get a batch."""
    rocksdict = peer("rocksdict")
    database = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    try:
        for pairs in contents.chunks(_CHUNK_ROWS):
            writes = rocksdict.WriteBatch(raw_mode=True)
            for key, row in pairs:
                writes.put(key, row)
            database.write(writes)
        database.flush()
        database.compact_range(None, None)

        def answer(batches: Sequence[Sequence[bytes]]) -> NDArray[np.float32]:
            out = aligned(len(batches[0]), contents.rows.shape[1])
            for batch in batches:
                _fill(out, database[list(batch)])
            return out

        yield answer
    finally:
        database.close()


@contextmanager
def _redis(folder: Path, contents: Contents) -> Iterator[Answer]:
    """Redis on a unix socket through redis-py with hiredis, MGET; the server's time is its own."""
    redis = peer("redis")
    peer("hiredis")
    if shutil.which("redis-server") is None:
        raise Missing("redis-server is not installed (Debian: redis-server)")
    address = folder / "redis.sock"
    server = subprocess.Popen(
        [
            "redis-server", "--port", "0", "--unixsocket", str(address), "--dir", str(folder),
            "--save", "", "--appendonly", "no",
        ],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        _wait_for(address, server)
        with redis.Redis(unix_socket_path=str(address)) as client:
            for pairs in contents.chunks(_CHUNK_ROWS):
                client.mset(dict(pairs))

            def answer(batches: Sequence[Sequence[bytes]]) -> NDArray[np.float32]:
                out = aligned(len(batches[0]), contents.rows.shape[1])
                for batch in batches:
                    _fill(out, client.mget(batch))
                return out

            yield answer
    finally:
        server.terminate()
        server.wait()


KEY_VALUE_STORES: Final[
    tuple[tuple[str, Callable[[Path, Contents], AbstractContextManager[Answer]]], ...]
] = (
    ("LMDB get loop, warm", _lmdb),
    ("RocksDB multi-get (rocksdict), compacted, warm", _rocksdb),
    ("Redis MGET, unix socket, hiredis", _redis),
)
"""Name, and what opens it filled in an empty folder; raises `Missing` where it is not here."""


def _fill(out: NDArray[np.float32], rows: Sequence[bytes]) -> None:
    out[:] = np.frombuffer(b"".join(rows), np.float32).reshape(out.shape)


def _wait_for(address: Path, server: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + _START_S
    while not address.exists():
        if server.poll() is not None or time.monotonic() > end:
            raise Missing("redis-server does not start")
        time.sleep(0.01)
