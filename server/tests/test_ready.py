import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from anabranch_server.ready import Ready, remove_ready, write_ready
from anabranch_wire.errors import Unavailable

READY = Ready(1, 1, None, "h:1", "h:2", "h:3", "h:4", None, (1,), {"ctr": "42"}, 0.5)


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    path.write_text("older")

    write_ready(path, READY)

    assert msgspec.json.decode(path.read_bytes(), type=Ready) == READY
    assert [file.name for file in tmp_path.iterdir()] == ["ready.json"]
    remove_ready(path)
    remove_ready(path)
    assert not path.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_neither_replaced_nor_removed(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "ready.json"
    make(path)

    with pytest.raises(Unavailable, match="expected a file, or nothing yet"):
        write_ready(path, READY)
    remove_ready(path)
    assert path.exists()
    assert not path.is_file()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file or directory"):
        write_ready(tmp_path / "missing" / "ready.json", READY)
