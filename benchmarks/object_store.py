"""An S3-compatible store in a process of its own, so that its work is neither client nor server.

`python object_store.py` runs one until its standard input ends, and prints what reaches it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import fsspec

from anabranch_testing.s3_servers import s3_server

__all__ = ["ObjectStore", "object_store"]


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running store.

    Attributes:
        url: `s3://BUCKET`.
        environ: what a client needs in its environment, keys included.
    """

    url: str
    environ: Mapping[str, str]

    def copy(self, folder: Path, path: str) -> None:
        """Put all files of a folder below a path of the bucket, manifests last."""
        files = fsspec.filesystem("s3", skip_instance_cache=True)
        there = [one for one in folder.rglob("*") if one.is_file()]
        for one in sorted(there, key=lambda one: one.name == "manifest.json"):
            files.put_file(str(one), f"{self.url}/{path}/{one.relative_to(folder)}")


@contextmanager
def object_store(core: int) -> Iterator[ObjectStore]:
    """Run a store on a core; meanwhile the environment of this process names it."""
    child = subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, str(Path(__file__).resolve())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin
    assert child.stdout
    try:
        told = json.loads(child.stdout.readline())
        with patch.dict(os.environ, told["environ"]):
            yield ObjectStore(told["url"], told["environ"])
    finally:
        child.stdin.close()
        child.wait(20)


def main() -> None:
    """Run a store until standard input ends."""
    with s3_server() as store:
        print(json.dumps({"url": store.url, "environ": dict(store.environ)}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
