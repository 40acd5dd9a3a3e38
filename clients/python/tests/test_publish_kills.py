"""Publishers that die, race, or find the disk full: one document a number, whole or not there."""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from anabranch_publish import Publisher, publish_version
from anabranch_wire import delta
from anabranch_wire.delta import Delta


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    (tmp_path / "repository").mkdir()
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    publish_version(tmp_path / "repository/ctr", tmp_path / "model.onnx", version=1)
    return tmp_path / "repository/ctr"


def published(model_dir: Path) -> list[Delta]:
    """Every delta that is there, after checking that each is whole."""
    found = []
    for folder in sorted((model_dir / "1/deltas").glob("*")):
        path = folder / "delta.json"
        if not path.exists():
            continue
        document = delta.decode(path.read_bytes())
        assert document.sequence == int(folder.name)
        assert len(document.files) == 2
        for file in document.files:
            data = (folder / document.attempt / file.path).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.bytes, file.sha256)
        found.append(document)
    return found


KILLED = """
import os, signal, sys
calls = [10**9]
def dying(call):
    def step(*args, **kwargs):
        if calls[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        calls[0] -= 1
        return call(*args, **kwargs)
    return step
for name in ("mkdir", "open", "fsync", "link", "rename", "unlink", "close", "scandir", "listdir"):
    setattr(os, name, dying(getattr(os, name)))
import numpy as np
from anabranch_publish import Publisher
first, count = int(sys.argv[2]), int(sys.argv[3])
for kill_at in range(first, first + count):
    pid = os.fork()
    if pid == 0:
        calls[0] = kill_at
        with Publisher(f"{sys.argv[1]}/{kill_at}/ctr", version=1) as publisher:
            draft = publisher.delta(step=kill_at, attempt=f"{kill_at:016x}")
            draft.upsert("t", np.arange(1000), np.ones((1000, 4), np.float32))
            draft.dense({"w": np.ones(10, np.float32)})
            draft.publish()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_publisher_killed_at_any_step_publishes_all_or_nothing(
    tmp_path: Path, model_dir: Path
) -> None:
    steps = 60
    for step in range(steps):
        (tmp_path / str(step)).mkdir()
        (tmp_path / str(step) / "ctr").mkdir()
        (tmp_path / str(step) / "ctr/1").mkdir()
        manifest = (model_dir / "1/manifest.json").read_bytes()
        (tmp_path / str(step) / "ctr/1/manifest.json").write_bytes(manifest)

    said = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), "0", str(steps)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip

    codes = [int(line) for line in said.stdout.split()]
    assert codes[0] == -signal.SIGKILL
    assert codes[-1] == 0, "there are more steps than were tried"
    assert codes == sorted(codes), "once it gets through, it gets through"
    outcomes = []
    for step, code in enumerate(codes):
        repository = tmp_path / str(step) / "ctr"
        found = published(repository)
        assert len(found) == 1 or code != 0
        outcomes.append(len(found))
        with Publisher(repository, version=1) as restarted:
            again = restarted.delta(step=step, attempt=f"{step:016x}")
            again.upsert("t", np.arange(1000), np.ones((1000, 4), np.float32))
            again.dense({"w": np.ones(10, np.float32)})
            assert again.publish() == 1, "the trainer that was killed publishes it once"
        assert [each.step for each in published(repository)] == [step]
    assert outcomes == sorted(outcomes), "it is there from one step on"
    assert outcomes.count(1) > codes.count(0), "also where it was killed just after"


RACING = """
import sys, time
import numpy as np
from anabranch_publish import Publisher
from anabranch_wire.errors import Conflict
model_dir, name, start, rounds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
lost = 0
with Publisher(model_dir, version=1) as publisher:
    time.sleep(max(0, start - time.time()))
    for step in range(rounds):
        draft = publisher.delta(step=name * 1000 + step)
        draft.upsert("t", [name, 7], np.full((2, 2), step, np.float32))
        draft.dense({"w": np.ones(2, np.float32)})
        while True:
            try:
                print(draft.publish())
                break
            except Conflict as error:
                assert "is taken: publish() again" in str(error), error
                lost += 1
print(f"lost {lost}")
"""


def test_racing_publishers_leave_neither_gaps_nor_doubles(model_dir: Path) -> None:
    start = time.time() + 1.5
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, str(model_dir), str(name), str(start), "50"],
            stdout=subprocess.PIPE, text=True,
        )
        for name in range(2)
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[0].split("lost") for process in racing]

    assert [process.returncode for process in racing] == [0, 0]
    numbers = [[int(word) for word in numbers.split()] for numbers, _ in said]
    assert sorted(numbers[0] + numbers[1]) == list(range(1, 101))
    assert sum(int(lost) for _, lost in said) > 0, "they did race"
    found = published(model_dir)
    assert [each.sequence for each in found] == list(range(1, 101))
    for name in range(2):  # each publisher's deltas are in the order in which it made them
        steps = [e.step for e in found if e.step is not None and e.step // 1000 == name]
        assert steps == [name * 1000 + step for step in range(50)]
    for folder in (model_dir / "1/deltas").iterdir():
        assert len(list(folder.iterdir())) == 2, "the files of losers are gone"


FULL = """
import resource, signal, sys
import numpy as np
from anabranch_publish import Publisher
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with Publisher(sys.argv[1], version=1) as publisher:
    draft = publisher.delta()
    draft.upsert("t", np.arange(100_000), np.ones((100_000, 4), np.float32))
    draft.dense({"w": np.ones(10, np.float32)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    try:
        draft.publish()
    except OSError as error:
        print(error.strerror)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if len(sys.argv) > 3:
        print(draft.publish())
"""


@pytest.mark.parametrize("limit", [0, 1, 100, 1_000_000])
def test_a_full_disk_publishes_nothing(model_dir: Path, limit: int) -> None:
    command = [sys.executable, "-c", FULL, str(model_dir), str(limit)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)

    assert said.stdout.strip() == "File too large"
    assert [p for p in (model_dir / "1/deltas").rglob("*") if p.is_file()] == []

    said = subprocess.run([*command, "2"], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.split("\n")[1] == "1", "and once there is room, all of it"
    assert len(published(model_dir)) == 1
