import datetime
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_wire.documents import Document, convert, decode_json, encode_json
from anabranch_wire.errors import InvalidInput, Unsupported


class Zeros(Document, frozen=True, kw_only=True, tag="zeros", tag_field="policy"):
    pass


class Vector(Document, frozen=True, kw_only=True, tag="vector", tag_field="policy"):
    value: tuple[float, ...]


class Table(Document, frozen=True, kw_only=True):
    dim: Annotated[int, msgspec.Meta(ge=1)]
    rows: Literal["f32", "f16"] = "f32"
    missing: Literal["original"] | Zeros | Vector = "original"
    window: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.dim == 13:
            raise ValueError("dim 13 is unlucky - at least here")
        if self.dim == 14:
            raise InvalidInput("dim 14 is no better")


class Settings(Document, frozen=True, kw_only=True):
    format: Literal[1] = 1
    tables: dict[str, Table] = msgspec.field(default_factory=dict)
    chain: tuple[Table, ...] = ()
    ratio: float = 0.0
    from_: int = msgspec.field(name="from", default=0)
    extra: dict[str, object] = msgspec.field(default_factory=dict)


def refusal(data: object) -> str:
    with pytest.raises(InvalidInput) as caught:
        convert(data, Settings, "s.yaml")
    return caught.value.message


def test_plain_data_becomes_the_typed_value() -> None:
    found = convert(
        {
            "format": 1,
            "tables": {"a.b": {"dim": 8, "missing": {"policy": "vector", "value": [1, 2.5]}}},
            "from": 3,
            "extra": {"anything": [{"goes": None}]},
        },
        Settings,
        "s.yaml",
    )

    assert found.tables["a.b"].missing == Vector(value=(1.0, 2.5))
    assert found.from_ == 3
    assert found.extra == {"anything": [{"goes": None}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"tabels": {}},
            "s.yaml: tabels: unknown key, did you mean 'tables'? "
            "expected one of format, tables, chain, ratio, from, extra",
        ),
        (
            {"tables": {"a.b": {"dim": 8, "row": "f16"}}},
            "s.yaml: tables['a.b'].row: unknown key, did you mean 'rows'? "
            "expected one of dim, rows, missing, window",
        ),
        (
            {"chain": [{"dim": 8}, {"zzz": 8}]},
            "s.yaml: chain[1].zzz: unknown key; expected one of dim, rows, missing, window",
        ),
        ({7: {}}, "s.yaml: key 7: expected a string"),
    ],
)
def test_unknown_keys_are_refused_with_their_path_and_a_suggestion(
    data: object, message: str
) -> None:
    assert refusal(data) == message


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "missing key 'dim'"),
        ({"dim": "8"}, "dim: expected an integer, got a string"),
        ({"dim": True}, "dim: expected an integer, got true or false"),
        ({"dim": 0}, "dim: expected an integer >= 1"),
        ({"dim": 13}, "dim 13 is unlucky - at least here"),
        ({"dim": 14}, "dim 14 is no better"),
        ({"dim": 8, "rows": "f61"}, "rows: found 'f61', did you mean 'f16'? "
                                    "expected one of f32, f16"),
        ({"dim": 8, "rows": 16}, "rows: found 16; expected one of f32, f16"),
        ({"dim": 8, "missing": "orignal"}, "missing: found 'orignal', did you mean 'original'? "
                                           "expected original or a mapping"),
        ({"dim": 8, "missing": {}}, "missing: missing key 'policy'"),
        ({"dim": 8, "missing": {"policy": "zero"}},
         "missing.policy: found 'zero', did you mean 'zeros'? expected one of zeros, vector"),
        ({"dim": 8, "missing": {"policy": "zeros", "value": []}},
         "missing.value: unknown key; expected policy"),
        ({"dim": 8, "missing": {"policy": "vector", "value": [1, "x"]}},
         "missing.value[1]: expected a number, got a string"),
        ({"dim": 8, "window": [1, 2, 3]}, "window: expected a list of length 2, got 3"),
        ({"dim": 8, "window": [1, None]}, "window[1]: expected an integer, got null"),
        ({"dim": 8, "window": 5}, "window: expected a list or null, got an integer"),
        (datetime.date(2026, 1, 2), "expected a mapping, got date"),
    ],
)  # fmt: skip
def test_the_first_fault_is_named_in_place(table: object, message: str) -> None:
    place = "s.yaml: tables['a']"
    assert refusal({"tables": {"a": table}}) in (f"{place}.{message}", f"{place}: {message}")


def test_mapping_keys_of_the_wrong_type_are_named() -> None:
    assert refusal({"tables": {3: {"dim": 1}}}) == (
        "s.yaml: tables[3]: expected a string, got an integer"
    )


def test_faults_are_reported_in_reading_order_and_a_typo_before_what_it_leaves_missing() -> None:
    assert "dmi: unknown key, did you mean 'dim'?" in refusal({"chain": [{"dmi": 8}], "ratio": ""})


def test_long_foreign_values_are_cut() -> None:
    assert len(refusal({"x" * 10_000: 1})) < 300
    assert len(refusal({"chain": [{"dim": 1, "rows": "y" * 10_000}]})) < 300


@pytest.mark.parametrize("data", [None, [], "text", 5])
def test_a_document_is_a_mapping(data: object) -> None:
    assert refusal(data).startswith("s.yaml: expected a mapping, got ")


def test_a_newer_format_is_unsupported_whatever_else_it_holds() -> None:
    with pytest.raises(Unsupported, match=r"s.yaml: format 2 is newer .* \(up to 1\): upgrade"):
        convert({"format": 2, "novelty": []}, Settings, "s.yaml")


@pytest.mark.parametrize("number", [0, -1, "1", True, 1.5])
def test_a_format_that_never_was_is_invalid(number: object) -> None:
    assert refusal({"format": number}).startswith("s.yaml: format: ")


def test_other_kinds_than_documents_convert_too() -> None:
    assert convert([1, 2], list[int], "ids") == [1, 2]
    with pytest.raises(InvalidInput, match=r"ids: \[1\]: expected an integer, got a string"):
        convert([1, "a"], list[int], "ids")


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"\xff", b'{"a": NaN}', b'"\\ud800"', b"\xef\xbb\xbf{}", b"[1] 2", b"1e999"],
)
def test_bytes_that_are_not_json_are_invalid(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"m\.json: not JSON: "):
        decode_json(data, Settings, "m.json")


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"extra":{"a":' + b"[" * 100_000])
def test_deep_nesting_is_invalid_not_a_crash(data: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"m.json: (nested too deeply|not JSON)"):
        decode_json(data, Settings, "m.json")


def test_free_keys_may_hold_anything_at_any_depth() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]

    document = convert({"extra": {"a": deep}}, Settings, "s.yaml")

    with pytest.raises(InvalidInput, match=r"m\.json: "):
        encode_json(document, "m.json")


def test_encoding_is_readable_and_reads_back() -> None:
    document = Settings(tables={"a": Table(dim=8)}, from_=2)

    data = encode_json(document, "m.json")

    assert data.startswith(b'{\n  "format": 1,\n')
    assert data.endswith(b"}\n")
    assert decode_json(data, Settings, "m.json") == document


@pytest.mark.parametrize(
    "document",
    [
        Settings(ratio=float("nan")),  # JSON has no word for it
        Settings(tables={"a": Table(dim=0)}),  # in range only after a check
        Settings(extra={"a": object()}),
        # What a checker refuses is what is tested.
        Settings(extra={"a": float("inf")}, from_=0.5),  # type: ignore[arg-type]  # to be refused
    ],
)
def test_what_the_reader_would_refuse_is_not_written(document: Settings) -> None:
    with pytest.raises(InvalidInput, match=r"m\.json: "):
        encode_json(document, "m.json")


plain_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["format", "tables", "chain", "dim", "missing", "policy", "a", 1, None]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(plain_data)
def test_any_plain_data_converts_or_is_refused_in_words(data: object) -> None:
    message = "s.yaml: "
    try:
        convert(data, Settings, "s.yaml")
    except (InvalidInput, Unsupported) as error:
        message = error.message

    assert message.startswith("s.yaml: ")
    assert not message.endswith(": invalid")
