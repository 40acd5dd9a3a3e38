import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch_server.config import ServeConfig
from anabranch_server.processes.boot import Boot, ListenAddress, read_boot, write_boot
from anabranch_server.processes.packets import sealed_memory
from anabranch_server.settings import read_settings, serve_config
from anabranch_wire.errors import InvalidInput


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    flags: Mapping[str, Any] = {
        "models": "a,b",
        "ready_file": str(tmp_path / "ready.json"),
        "workers": 3,
        "run_dir": str(tmp_path / "run-{http_port}"),
        "drain_s": 1.5,
    }
    return serve_config(read_settings(flags, {}, None), str(tmp_path), cores=4)


def boot_of(config: ServeConfig) -> Boot:
    return Boot(
        role="worker",
        launch="0123456789abcdef",
        launcher_pid=4242,
        launcher_started=17.25,
        config=config,
        addresses={"http": ListenAddress("127.0.0.1", 8000)},
        descriptors={},
        run_dir="/run/anabranch",
        index=2,
        incarnation=3,
    )


def test_a_process_is_told_what_the_launcher_was_told(config: ServeConfig) -> None:
    read = read_boot(["worker", str(write_boot(boot_of(config)))])

    assert read == boot_of(config)
    # Equality would not see a list in place of a tuple, nor a text in place of a path.
    _check_types(read.config, config)
    assert isinstance(read.config.ready_file, Path)
    assert read.config.repository.models == ("a", "b")


def _check_types(read: Any, sent: Any) -> None:
    for field in dataclasses.fields(sent):
        if field.name == "shown":  # plain data
            continue
        ours, theirs = getattr(sent, field.name), getattr(read, field.name)
        if dataclasses.is_dataclass(ours):
            assert type(ours) is type(theirs)
            _check_types(theirs, ours)
        else:
            assert isinstance(theirs, type(ours) if type(ours) is not int else int | float)


def test_its_descriptors_are_not_inherited_by_what_it_starts(config: ServeConfig) -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    boot = msgspec.structs.replace(boot_of(config), descriptors={"inbox": read})
    document = write_boot(boot)

    assert read_boot(["worker", str(document)]).descriptors == {"inbox": read}

    assert not os.get_inheritable(read)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(document)
    os.close(read)
    os.close(write)


def test_nobody_starts_it_by_hand(config: ServeConfig) -> None:
    damaged = sealed_memory("test", b"\x81\xa4role")
    for argv in (["worker"], ["worker", "x"], ["worker", "99999"], ["worker", str(damaged)]):
        with pytest.raises(InvalidInput, match="start one with `anabranch serve DIR`"):
            read_boot(argv)
