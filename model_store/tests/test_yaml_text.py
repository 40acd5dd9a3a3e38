import random
from pathlib import Path

import pytest

from anabranch_model_store.yaml_text import MAX_BYTES, Place, parse_yaml
from anabranch_wire.errors import InvalidInput, TooLarge


def plain(text: str) -> object:
    return parse_yaml(text.encode(), "a.yaml")[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("# nothing\n", None), ("---\n", None), ("~", None), ("null", None),
        ("true", True), ("False", False), ("yes", "yes"), ("off", "off"), ("no", "no"),
        ("1", 1), ("-1", -1), ("010", 10), ("0o17", 15), ("0x1F", 31), ("1_000", "1_000"),
        ("1e-5", 1e-5), ("1.0E+5", 1e5), (".5", 0.5), ("-.5", -0.5), ("1.", 1.0), ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"), ("'1'", "1"), ('"true"', "true"), ("''", ""),
        ("|\n  1\n", "1\n"), ("[1, [2, {a: }]]", [1, [2, {"a": None}]]),
        ("1: x\ntrue: y\n'': z", {"1": "x", "true": "y", "": "z"}), ("<<: 1", {"<<": 1}),
    ],
)  # fmt: skip
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    found = plain(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &x 1\nb: *x", r"line 1: anchors \(&x\)"),
        ("a:\n- 1\nb: *x", r"line 3: aliases \(\*name\)"),
        ("a: !!python/object:os.system 1", r"line 1: tags \(tag:yaml\.org,2002:python/object"),
        ("a: !!str 1", "tags"),
        ("a: 1\nb: 2\na: 3", r"line 3: the key 'a' stands there twice"),
        ("{1: x, '1': y}", "twice"),
        ("a: 1\n---\nb: 1", r"line 2: a second document"),
        ("[a]: 1", "list or mapping as a key"),
        ("? {a: b}\n: 1", "list or mapping as a key"),
        ("a: .inf", r"the number \.inf"),
        ("a: -.Inf", "finite"),
        ("a: .nan", "finite"),
        ("a: 1e999", "finite"),
        ("a: " + "1" * 41, "more than 40 characters"),
        ("a: [1", r"line 1: |line 2: "),
        ("a:\n\t- b", r"line 2: "),
        ("a: \x01", "control characters|not allowed"),
    ],
)
def test_what_is_not_read_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        plain(text)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"a\.yaml: not UTF-8 at byte 3"):
        parse_yaml(b"a: \xff", "a.yaml")
    with pytest.raises(InvalidInput):
        parse_yaml(b'a: "\\ud800"', "a.yaml")
    with pytest.raises(InvalidInput):
        parse_yaml(b"\x00", "a.yaml")


@pytest.mark.parametrize(
    "text",
    [b"#" * (MAX_BYTES + 1), b"[" * 33, b"[" + b"1," * 200_001, b"{a: " * 40],
    ids=["bytes", "lists", "values", "mappings"],
)
def test_size_depth_and_number_of_values_are_limited(text: bytes) -> None:
    with pytest.raises(TooLarge):
        parse_yaml(text, "a.yaml")


def test_every_value_knows_its_line() -> None:
    _, place = parse_yaml(b"# comment\na:\n  - 1\n  -\n    b: 2\nc: {d: 3}\n", "a.yaml")
    assert place == Place(
        2,
        {
            "a": Place(2, {0: Place(3), 1: Place(5, {"b": Place(5)})}),
            "c": Place(6, {"d": Place(6)}),
        },
    )


def test_ten_thousand_mutations_are_read_or_refused(request: pytest.FixtureRequest) -> None:
    text = (Path(request.path).parent / "documents" / "serving.yaml").read_bytes()
    choose = random.Random(7)
    special = b"\x00\t\n\"'#&*!|>%@`{}[],:?-~\xff\xed\xa0\x80"
    refusals = []
    for _ in range(10_000):
        mutated = bytearray(text)
        for _ in range(choose.randint(1, 4)):
            at = choose.randrange(len(mutated))
            match choose.randrange(3):
                case 0:
                    mutated[at] = choose.randrange(256)
                case 1:
                    mutated[at:at] = bytes([choose.choice(special)])
                case _:
                    del mutated[at : at + choose.randint(1, 30)]
        try:
            parse_yaml(bytes(mutated), "a.yaml")
        except (InvalidInput, TooLarge) as error:
            refusals.append(error.message)
    assert 500 < len(refusals) < 9500
    assert all(message.startswith("a.yaml: ") for message in refusals)
