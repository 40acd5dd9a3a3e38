"""What deltas brought beside rows, kept for restarts: the newest that is there, never another's."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from anabranch_model_store.deltas.weight_states import MadeOf, WeightState, WeightStates

IDENTITY = "sha256:" + "ab" * 32


def state(folder: Path, delta: int, *, has_weights: bool = True) -> WeightState:
    """Return a state whose weights are there."""
    made = MadeOf(delta=delta, mark="0123456789abcdef")
    if not has_weights:
        return WeightState(delta=delta, weights=None, items=(delta,), made_of=(made,))
    path = folder / f"{delta}.safetensors"
    path.touch()
    return WeightState(delta=delta, weights=str(path), made_of=(made,))


@pytest.fixture
def states(tmp_path: Path) -> WeightStates:
    return WeightStates(tmp_path / "states", IDENTITY)


def test_the_newest_state_up_to_a_delta_is_found(states: WeightStates, tmp_path: Path) -> None:
    assert states.newest(99) is None
    every = [state(tmp_path, 3), state(tmp_path, 9, has_weights=False), state(tmp_path, 5)]
    for one in every:
        states.note(one)
    assert states.newest(2) is None
    assert states.newest(4) == every[0]
    assert states.newest(8) == every[2]
    assert WeightStates(tmp_path / "states", IDENTITY).newest(99) == every[1]
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700


def test_a_state_without_its_weights_is_passed_over(states: WeightStates, tmp_path: Path) -> None:
    old, new = state(tmp_path, 3), state(tmp_path, 5)
    states.note(old)
    states.note(new)
    (tmp_path / "5.safetensors").unlink()
    assert states.newest(9) == old


def test_a_state_of_other_deltas_is_passed_over(states: WeightStates, tmp_path: Path) -> None:
    old, new = state(tmp_path, 3), state(tmp_path, 5)
    states.note(old)
    states.note(new)
    assert new.marks == ((5, 0x0123456789ABCDEF),)
    assert states.newest(9, lambda one: (5, 0x0123456789ABCDEF) not in one.marks) == old
    assert states.newest(9, lambda one: False) is None


def test_a_state_names_the_newest_of_many_deltas(states: WeightStates, tmp_path: Path) -> None:
    made_of = tuple(MadeOf(delta=number, mark="0" * 16) for number in range(1, 101))
    states.note(replace(state(tmp_path, 100), made_of=made_of))
    found = states.newest(100)
    assert found is not None
    assert found.made_of == made_of[-32:]


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("0123456789abcdef", "0123456789abcdeg"),
        ("0123456789abcdef", "0123"),
        ('"made_of"', '"made_off"'),
        ('"format": 2', '"format": 1'),
    ],
)
def test_states_that_do_not_say_what_they_are_made_of_are_none(
    states: WeightStates, tmp_path: Path, found: str, instead: str
) -> None:
    states.note(state(tmp_path, 3))
    (file,) = (tmp_path / "states").iterdir()
    text = file.read_text().replace('"format":2', '"format": 2')
    assert found in text
    file.write_text(text.replace(found, instead))
    assert states.newest(9) is None


def test_only_the_newest_states_stay(states: WeightStates, tmp_path: Path) -> None:
    for delta in range(1, 21):
        states.note(state(tmp_path, delta))
    assert states.newest(4) is None
    assert states.newest(5) is not None
    states.note(state(tmp_path, 20, has_weights=False))
    found = states.newest(20)
    assert found is not None
    assert found.items == (20,)


def test_states_of_another_version_and_damaged_ones_are_none(
    states: WeightStates, tmp_path: Path
) -> None:
    states.note(state(tmp_path, 3))
    (file,) = (tmp_path / "states").iterdir()
    other = WeightStates(tmp_path / "states", "sha256:" + "cd" * 32)
    assert other.newest(9) is None
    text = file.read_text()
    file.write_text(text.replace(IDENTITY, "sha256:" + "cd" * 32))
    assert states.newest(9) is None
    file.write_text(text[:-3])
    assert states.newest(9) is None
    states.note(state(tmp_path, 4))
    assert states.newest(9) is not None


def test_states_of_few_versions_stay_and_nothing_that_a_kill_left(
    states: WeightStates, tmp_path: Path
) -> None:
    (tmp_path / "states").mkdir()
    for index in range(100):
        left = tmp_path / "states" / (f"{index}.json" if index % 2 else f".{index}.tmp")
        left.touch()
        os.utime(left, (1000.0 + index, 1000.0 + index))

    states.note(state(tmp_path, 3))

    assert states.newest(9) is not None
    names = {file.name for file in (tmp_path / "states").iterdir()}
    assert len(names) == 64
    assert "99.json" in names
    assert ".0.tmp" not in names


def test_what_cannot_be_kept_is_left(tmp_path: Path) -> None:
    (tmp_path / "states").write_text("a file where the folder should be")
    states = WeightStates(tmp_path / "states", IDENTITY)
    states.note(state(tmp_path, 3))
    assert states.newest(9) is None
