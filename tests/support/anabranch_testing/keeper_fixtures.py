"""Fixtures of tests with a `KeptServer`: a plugin, which the root's conftest.py names."""

from pathlib import Path

import pytest

__all__ = ["root", "state"]


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
