"""What is held in the end and was not before is a complaint."""

import dataclasses
from pathlib import Path

import pytest

from anabranch_testing.server_processes import Role
from chaos import Held, leaks
from chaos.holdings import folder_bytes, overflowing

BEFORE = Held(descriptors=30, memory_bytes=60 << 20, generations=2, segments=2)


def words(after: Held, role: Role = "worker", generations: int = 2) -> list[str]:
    return [complaint.words for complaint in leaks({"worker": BEFORE}, {role: after}, generations)]


def test_what_was_held_before_is_no_leak() -> None:
    assert words(BEFORE) == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"descriptors": 90}, "30 -> 90 descriptors"),
        ({"memory_bytes": 160 << 20}, "60 -> 160 MiB"),
        ({"generations": 3}, "3 generations"),
        ({"segments": 4}, "4 segments"),
    ],
)
def test_more_of_anything_is_a_leak(changes: dict[str, int], told: str) -> None:
    (found,) = words(dataclasses.replace(BEFORE, **changes))
    assert told in found


def test_mappings_are_bounded_for_a_process_that_was_not_there_before() -> None:
    assert words(dataclasses.replace(BEFORE, generations=3), role="supervisor")


def test_a_cache_folder_may_grow_by_what_passed_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "deltas").mkdir()
    (tmp_path / "deltas" / "run").write_bytes(b"12345")
    (tmp_path / "graph").write_bytes(b"123")

    assert folder_bytes(tmp_path) == 8
    assert list(overflowing(8, 8 + (8 << 20))) == []
    assert [one.rule for one in overflowing(8, 8 + (800 << 20))] == ["leaked"]
