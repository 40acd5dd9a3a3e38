"""Version after version of one graph, each with weights of its own, published by rename."""

import json
import shutil
import tempfile
import time
import urllib.request
from collections import deque
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

from anabranch_publish import publish_version

__all__ = ["NewVersions"]

_POLL_S: Final = 0.1


class NewVersions:
    """Publishes into a model's folder that has version 1.

    Args:
        model_dir: the folder; its name is the model's.
        graph: the first version's graph.
        admin: `host:port` of the admin port of the server that watches it.
    """

    def __init__(self, model_dir: Path, graph: Path, admin: str) -> None:
        self._folder = model_dir
        self._model = onnx.load(graph)
        self._admin = admin
        self._staging = model_dir.parents[1] / "staged" / model_dir.name
        self._staged: deque[int] = deque()
        self.newest = 1

    def stage(self, count: int) -> None:
        """Make the next versions beside the repository, so that publishing them is a rename.

        A publisher works on another machine: its work must not be measured.
        """
        self._staging.parent.mkdir(exist_ok=True)
        first = self.newest + 1 + len(self._staged)
        for version in range(first, first + count):
            self._make(self._staging, version)
            self._staged.append(version)

    def publish(self) -> int:
        """Publish the next version and return its number."""
        self.newest += 1
        if self._staged:
            version = self._staged.popleft()
            (self._staging / str(version)).rename(self._folder / str(version))
        else:
            self._make(self._folder, self.newest)
        return self.newest

    def _make(self, folder: Path, version: int) -> None:
        bias = self._model.graph.initializer[-1]
        values = numpy_helper.to_array(bias) + np.float32(1e-6)
        bias.CopyFrom(numpy_helper.from_array(values, bias.name))
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / "model.onnx"
            path.write_bytes(self._model.SerializeToString())
            publish_version(folder, path, version=version)

    def wait_served(self, timeout_s: float = 120.0) -> None:
        """Wait until the newest version answers.

        Raises:
            TimeoutError: it does not; the message has what the server says of it.
        """
        end = time.monotonic() + timeout_s
        while (told := self._state())["READY"] < self.newest:
            if time.monotonic() > end:
                raise TimeoutError(f"version {self.newest} is not served: {told}")
            time.sleep(_POLL_S)

    def remove_old(self, keep: int) -> None:
        """Remove all folders but those of the newest `keep` versions."""
        for path in self._folder.iterdir():
            if path.name.isdigit() and int(path.name) <= self.newest - keep:
                shutil.rmtree(path)

    def _state(self) -> dict[str, int]:
        """Newest version in each state; READY is 0 where none is."""
        url = f"http://{self._admin}/admin/v1/models/{self._folder.name}"
        with urllib.request.urlopen(url, timeout=20) as answer:
            model = json.loads(answer.read())
        newest = {"READY": 0}
        for version in model["versions"]:
            newest[version["state"]] = max(version["version"], newest.get(version["state"], 0))
        return newest
