"""What did not fit into a fresh store is known, by what was asked for."""

from pathlib import Path

import msgspec
import pytest

from anabranch_server.processes.plans import RunPlan, VersionPlan
from anabranch_server.supervisor.alterations import NoRoom
from anabranch_server.supervisor.store_refusals import Refusals
from anabranch_testing.marked_rows import marked_plan


@pytest.fixture
def version(tmp_path: Path) -> VersionPlan:
    return at(marked_plan(tmp_path, 1), 1)


def at(version: VersionPlan, delta: int) -> VersionPlan:
    return msgspec.structs.replace(version, delta=delta, runs=(RunPlan("/r", 1, delta),))


def test_the_same_rows_are_refused_with_what_was_said(version: VersionPlan) -> None:
    refusals = Refusals()
    assert refusals.of(version) is None

    refusals.note(version, NoRoom("room for 7 keys"))

    found = refusals.of(version)
    assert found is not None
    assert (found.message, found.version) == ("room for 7 keys", 1)


def test_other_rows_may_fit(version: VersionPlan) -> None:
    refusals = Refusals()
    refusals.note(version, NoRoom("room for 7 keys"))

    assert refusals.of(at(version, 2)) is None
    assert refusals.of(msgspec.structs.replace(version, version=2)) is None
    assert refusals.of(msgspec.structs.replace(version, identity="sha256:01")) is None


def test_the_oldest_is_forgotten(version: VersionPlan) -> None:
    refusals = Refusals()
    for delta in range(1, 66):
        refusals.note(at(version, delta), NoRoom("room for 7 keys"))

    assert refusals.of(at(version, 1)) is None
    assert all(refusals.of(at(version, delta)) for delta in range(2, 66))
