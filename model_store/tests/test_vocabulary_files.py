"""Vocabulary files: what is read, what workers read again; any bytes are one or refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.model_yaml import Vocabulary
from anabranch_model_store.vocabulary_files import parse_vocabulary, vocabulary_plan
from anabranch_runtime.ranking.vocabulary_files import read_vocabulary
from anabranch_wire.errors import InvalidInput

MEANING = Vocabulary(file="vocab/x.txt", first_id=3, unknown=-1)
TEXTS = st.lists(
    st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"])),
    min_size=1,
    unique=True,
)
INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, unique=True)


@given(values=TEXTS | INTEGERS, end=st.sampled_from(["\n", "\r\n"]))
def test_values_come_back(values: list[Any], end: str) -> None:
    kind: Any = "string" if isinstance(values[0], str) else "int64"
    if end == "\n" and any(str(value).endswith("\r") for value in values):
        return  # a return before the end of a line is a part of that end
    if str(values[0]).startswith("\ufeff"):
        return
    data = "".join(f"{value}{end}" for value in values).encode()
    assert parse_vocabulary(data, kind, "x.txt") == tuple(values)


@given(data=st.binary(max_size=60) | st.text("0123456789-\r\n+ ").map(str.encode))
@pytest.mark.parametrize("kind", ["string", "int64"])
def test_any_bytes_are_a_vocabulary_or_refused(kind: Any, data: bytes) -> None:
    try:
        values = parse_vocabulary(data, kind, "x.txt")
    except InvalidInput as error:
        assert error.message.startswith("x.txt")  # noqa: PT017  # any input may be refused
    else:
        assert values
        assert len(set(values)) == len(values)
        assert {type(value) for value in values} == {str if kind == "string" else int}


@settings(max_examples=20)
@given(values=TEXTS | INTEGERS)
def test_workers_read_what_was_written(
    values: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    kind: Any = "string" if isinstance(values[0], str) else "int64"
    more = [f"{'x' * 100}{number}" if kind == "string" else number for number in range(5000)]
    whole = tuple(dict.fromkeys([*values, *more]))
    folder = tmp_path_factory.mktemp("cache")

    plan = vocabulary_plan(MEANING, whole, BuiltGraphs(folder, 1 << 30))

    assert (plan.first_id, plan.unknown) == (3, -1)
    if plan.file is None:  # a value of it is no line
        assert any(str(value).endswith("\r") for value in whole)
        assert plan.values == whole
    else:
        assert plan.values == ()
        assert folder in Path(plan.file).parents
        assert read_vocabulary(plan.file, kind) == whole
