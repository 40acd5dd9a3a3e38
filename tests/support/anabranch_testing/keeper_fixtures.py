"""Fixtures of tests with a `KeptServer`: a plugin, which the root's conftest.py names."""

from pathlib import Path

import pytest

__all__ = ["no_spare_room", "root", "state"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty repository."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where a server may keep what outlives it; not there yet."""
    return tmp_path / "state"


@pytest.fixture
def no_spare_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables begin with the room that their versions plan, as where memory is short."""
    monkeypatch.setattr(
        "anabranch_server.supervisor.store_opening.with_room_for_all",
        lambda tables, rooms, available_bytes: rooms,
    )
