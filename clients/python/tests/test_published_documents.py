"""manifest.json, delta.json and plan.json: what every one of them must do."""

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch_wire import delta, manifest, plan
from anabranch_wire.documents import Document, convert
from anabranch_wire.errors import InvalidInput, Unsupported
from anabranch_wire.lookups import Lengths, Offsets
from anabranch_wire.missing import FallbackKey, Original, Vector
from anabranch_wire.tensors import TensorSpec
from anabranch_wire.weight_targets import SliceOrScale, ToDense

Plain = dict[str, object]


@dataclass(frozen=True)
class Case:
    """One kind of document, with a valid example that uses every field."""

    name: str
    decode: Callable[[bytes], Document]
    encode: Callable[..., bytes]

    def example(self) -> bytes:
        return Path(__file__).parent.joinpath("documents", self.name).read_bytes()

    def plain(self) -> Plain:
        found: Plain = json.loads(self.example())
        return found


CASES = [
    Case("manifest.json", manifest.decode, manifest.encode),
    Case("delta.json", delta.decode, delta.encode),
    Case("plan.json", plan.decode, plan.encode),
]
every_kind = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def places(data: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place below the top of a tree of plain data."""
    steps: Iterable[tuple[str | int, object]] = ()
    if isinstance(data, dict):
        steps = data.items()
    elif isinstance(data, list):
        steps = enumerate(data)
    for step, below in steps:
        yield (*path, step)
        yield from places(below, (*path, step))


def parent(data: Any, path: tuple[str | int, ...]) -> Any:
    """The dict or list that holds the place `path` of a tree of plain data."""
    for step in path[:-1]:
        data = data[step]
    return data


@every_kind
def test_what_is_written_is_what_was_read(case: Case) -> None:
    document = case.decode(case.example())

    written = case.encode(document)

    assert json.loads(written) == case.plain()
    assert case.decode(written) == document
    assert case.encode(case.decode(written)) == written


@every_kind
def test_a_newer_format_is_unsupported(case: Case) -> None:
    data = json.dumps({**case.plain(), "format": 2, "tables": "of another kind"}).encode()
    with pytest.raises(Unsupported, match=rf"{case.name}: format 2 is newer .*\(up to 1\)"):
        case.decode(data)


@every_kind
def test_a_misspelt_key_is_refused_wherever_it_stands(case: Case) -> None:
    tags = {"policy", "form", "to"}  # without its tag a union has no known keys
    for path in places(case.plain()):
        data = case.plain()
        holder = parent(data, path)
        key = path[-1]
        if isinstance(key, int) or key in tags or "extra" in path[:-1] or path[:-1] == ("weights",):
            continue
        holder[key + "_"] = holder.pop(key)
        with pytest.raises(InvalidInput, match=rf"{key}_: unknown key, did you mean '{key}'\?"):
            case.decode(json.dumps(data).encode())


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)  # a plan has no extra
def test_extra_is_free(case: Case) -> None:
    data = {**case.plain(), "extra": {"anything": [{"goes": None}], "1": 1.5}}
    assert json.loads(case.encode(case.decode(json.dumps(data).encode()))) == data


@every_kind
def test_a_value_of_another_type_is_refused_wherever_it_stands(case: Case) -> None:
    for path in places(case.plain()):
        if "extra" in path:
            continue
        data = case.plain()
        parent(data, path)[path[-1]] = [True, {}]
        with pytest.raises(InvalidInput, match=rf"{case.name}: .*{path[0]}"):
            case.decode(json.dumps(data).encode())


HEX = "0" * 64
FILE: Plain = {"path": "model.onnx", "bytes": 1, "sha256": HEX}
TABLE_FILE: Plain = {
    "name": "t", "file": "model.onnx", "rows": 1, "dim": 1, "dtype": "f32", "key_dtype": "int64",
}  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["kind"], "delta", "kind: found 'delta'; expected version"),
        (["model"], "../ctr", "model name '../ctr': expected 1 to 128 of"),
        (["model"], "a..b", "and no '..'"),
        (["version"], 0, "version: expected an integer >= 1"),
        (["version"], 10**18, "version: expected an integer <= 9999"),
        (["version"], "42", "version: expected an integer, got a string"),
        (["producer"], "", "producer: expected a string of length >= 1"),
        (["created"], -1, "created: expected a number >= 0.0"),
        (["step"], -1, "step: expected an integer >= 0"),
        (["step"], 2**63, "step: expected an integer <= 9223372036854775807"),
        (["event_time"], "now", "event_time: expected a number or null, got a string"),
        (["structure_hash"], HEX, "structure_hash: expected a string matching regex '^sha256:"),
        (["model_file"], "other.onnx", "'other.onnx' is used, but not listed under files"),
        (["model_file"], "../model.onnx", "path '../model.onnx': expected parts joined by '/'"),
        (["tables", 0, "name"], "", "tables[0]: name '': expected 1 to 512 bytes"),
        (["tables", 0, "name"], "é" * 257, "expected 1 to 512 bytes"),
        (["tables", 0, "dim"], 0, "tables[0].dim: expected an integer >= 1"),
        (["tables", 0, "dtype"], "fp32", "found 'fp32', did you mean 'f32'?"),
        (["tables"], [TABLE_FILE, TABLE_FILE], "table 't' is there twice"),
        (["files"], [FILE, FILE], "file 'model.onnx' is there twice"),
        (["files", 0, "bytes"], -1, "files[0].bytes: expected an integer >= 0"),
        (["files", 0, "sha256"], HEX.replace("0", "A"), "files[0].sha256: expected a string match"),
        (["files", 0, "sha256"], HEX + "\n", "files[0].sha256: expected a string matching"),
        (["files", 0, "sha256"], None, "model.onnx: only a segment (.seg) may have no sha256"),
        (["files", 0, "path"], "/etc/passwd", "files[0]: path '/etc/passwd': expected parts"),
        (["files", 0, "path"], "a/./b", "expected parts joined by '/'"),
        (["files", 0, "path"], "a\\b", "expected printable characters and no backslash"),
        (["files", 0, "path"], "a\0b", "expected printable characters"),
        (["files", 0, "path"], "a/" * 600 + "b", "expected 1 to 1024 bytes"),
        (["files", 0, "path"], "tables", "file 'tables' is also the folder of 'tables/000"),
        (["files", 0, "path"], "manifest.json", "manifest.json cannot list itself"),
    ],
)
def test_manifest_refusals(place: list[str | int], value: object, message: str) -> None:
    check_refusal(CASES[0], place, value, message)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["kind"], "version", "kind: found 'version'; expected delta"),
        (["sequence"], 0, "sequence: expected an integer >= 1"),
        (["sequence"], 100_000_000, "sequence: expected an integer <= 99999999"),
        (["replaces_from"], 18, "replaces_from 18 is beyond sequence 17"),
        (["base", "previous"], 15, "base.previous 15: expected 16 before sequence 17, or 0"),
        (["base", "identity"], HEX, "base.identity: expected a string matching"),
        (["attempt"], "3F9A61C2D40E7B58", "attempt: expected a string matching"),
        (["tables", 0, "dtype"], "int8", "tables[0].dtype: found 'int8'; expected one of"),
        (["tables", 0, "upserts"], -1, "tables[0].upserts: expected an integer >= 0"),
        (["tables", 0, "file"], "1.safetensors", "'1.safetensors' is used, but not listed"),
        (["dense", "file"], "1.safetensors", "'1.safetensors' is used, but not listed"),
        (["dense", "tensors"], [], "dense.tensors: expected a list of length >= 1"),
        (["dense", "tensors"], ["a", "a"], "dense: tensor 'a' is there twice"),
        (["item_tables", 0, "file"], "i.parquet", "'i.parquet' is used, but not listed"),
        (["golden"], ["a", "a"], "golden request 'a' is there twice"),
        (["golden"], ["../a"], "path '../a'"),
    ],
)
def test_delta_refusals(place: list[str | int], value: object, message: str) -> None:
    check_refusal(CASES[1], place, value, message)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (["source", "file"], "/m.onnx", "source: path '/m.onnx'"),
        (["graphs", "user"], "../u.onnx", "graphs: path '../u.onnx'"),
        (["tables", 1, "missing", "value"], [0.5], "missing.value has 1 numbers, rows have 4"),
        (["tables", 1, "missing"], {"policy": "zero"}, "did you mean 'zeros'?"),
        (["tables", 1, "missing"], {"policy": "key", "key": 2**64}, "expected a 64-bit integer"),
        (["tables", 1, "missing"], {"policy": "key", "key": -(2**63) - 1}, "64-bit integer"),
        (["tables", 1, "keys"], "auto", "tables[1].keys: found 'auto'; expected one of dense_id"),
        (["tables", 1, "name"], "embedding_dict.item_id.weight", "is there twice"),
        (["buffers", 1, "name"], "ab_rows", "dense input 'ab_rows' is there twice"),
        (["buffers", 0, "columns"], 0, "buffers[0].columns: expected an integer >= 1"),
        (["buffers", 0, "columns"], 11, "lookups[1]: writes columns 8 to 12, 'ab_rows' has 11"),
        (["pass_through"], ["ab_rows"], "dense input 'ab_rows' is there twice"),
        (["lookups", 0, "table"], 2, "lookups[0].table: there is no table 2"),
        (["lookups", 0, "output", "buffer"], 2, "lookups[0].output.buffer: there is no buffer 2"),
        (["lookups", 0, "side"], "user", "lookups[0]: side 'user' writes to 'ab_rows'"),
        (["lookups", 1, "output", "column"], 7, "lookups[0] and lookups[1] write one column"),
        (["lookups", 2, "max_length"], 6, "lookups[2]: writes columns 0 to 48"),
        (["lookups", 0, "ids", "columns"], [3, 3], "lookups[0].ids: columns [3, 3]: expected"),
        (["lookups", 0, "ids", "cast"], "round", "lookups[0].ids.cast: found 'round'; expected"),
        (["lookups", 1, "lengths", "form"], "offset", "did you mean 'offsets'?"),
        (["lookups", 1, "combiner"], "avg", "lookups[1].combiner: found 'avg'; expected one of"),
        (
            ["tables", 1, "padding_key"],
            2**64,
            "tables[1]: padding_key 18446744073709551616: expected",
        ),
        (["tables", 1, "capacity", "keys"], 5, "tables[1]: capacity.keys 5: the table has 100000"),
        (["tables", 1, "capacity", "arena_rows"], 2**31, "expected an integer <= 2147483647"),
        (["weights", "w"], [{"to": "table", "index": 2}], "weights['w']: there is no table 2"),
        (["weights", "stacked", 0, "transform"], {}, "expected exactly one of slice, scale"),
        (["weights", "stacked", 0, "transform", "scale"], 2, "expected exactly one of slice"),
        (["weights", "stacked", 0, "transform", "slice"], [5, 5], "slice [5, 5]: expected [beg"),
        (["weights", "stacked", 1, "transform", "scale"], 0, "scale 0.0: expected a finite"),
        (["weights", "stacked", 0, "transform"], "transposed", "did you mean 'transpose'?"),
        (["inputs", 0, "symbols"], [None], "input 'X' has 2 axes and names for 1"),
        (["inputs", 0, "shape"], [-2, 10], "inputs[0].shape[0]: expected an integer >= -1"),
        (["inputs", 0, "datatype"], "FP31", "inputs[0].datatype: found 'FP31'"),
        (["inputs", 0, "name"], "Y", "user_inputs: there is no input 'X'"),
        (["user_inputs"], ["X", "X"], "user input 'X' is there twice"),
        (["graphs", "user"], None, "user_inputs: there is no user graph that they are for"),
    ],
)
def test_plan_refusals(place: list[str | int], value: object, message: str) -> None:
    check_refusal(CASES[2], place, value, message)


def check_refusal(case: Case, place: list[str | int], value: object, message: str) -> None:
    data = case.plain()
    parent(data, tuple(place))[place[-1]] = value
    with pytest.raises(InvalidInput) as caught:
        case.decode(json.dumps(data).encode())
    assert message in caught.value.message


@pytest.mark.parametrize("key", [-(2**63), -1, 0, 2**64 - 1])
def test_every_64_bit_key_may_be_the_fallback(key: int) -> None:
    data = CASES[2].plain()
    parent(data, ("tables", 1, "missing"))["missing"] = {"policy": "key", "key": key}
    found = plan.decode(json.dumps(data).encode())
    assert found.tables[1].missing == FallbackKey(key=key)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_missing_vectors_are_finite_also_where_the_format_has_a_word_for_it(number: float) -> None:
    with pytest.raises(InvalidInput, match="value: expected finite numbers"):
        convert({"policy": "vector", "value": [0.5, number]}, Vector, "model.yaml")


def test_the_smallest_documents() -> None:
    found = manifest.decode(
        json.dumps(
            {"format": 1, "kind": "version", "model": "m", "version": 1, "producer": "p",
             "created": 0, "model_file": "model.onnx", "files": [FILE]}
        ).encode()
    )  # fmt: skip
    assert (found.tables, found.step, found.extra) == ((), None, {})


def test_a_plan_beside_the_graph_that_it_was_made_from_says_nothing_of_inputs() -> None:
    data = {key: value for key, value in CASES[2].plain().items() if "inputs" not in key}

    found = plan.decode(json.dumps(data).encode())

    assert (found.inputs, found.user_inputs) == ((), ())


def test_identity_is_the_digest_of_the_bytes() -> None:
    assert manifest.identity(b"").startswith("sha256:e3b0c44298fc1c14")


def test_plan_parts_come_as_typed_values() -> None:
    found = plan.decode(CASES[2].example())

    assert isinstance(found.tables[0].missing, Original)
    assert isinstance(found.lookups[1].lengths, Offsets)
    assert isinstance(found.lookups[2].lengths, Lengths)
    assert found.weights["stacked"][0] == ToDense(name="part", transform=SliceOrScale(slice=(0, 5)))
    assert found.inputs[0].spec == TensorSpec("X", "FP32", (-1, 10))


JUNK: list[object] = [
    None, True, -1, 0, 1.5, 2**63, 10**30, "", "x", "../x", "/x", "a\\b", "a//b", [], {}, [1, 2],
    {"policy": "zeros"}, {"slice": [0, 1], "scale": 1}, "\u0000", "9" * 3000,
]  # fmt: skip


def refusal(case: Case, data: bytes) -> str | None:
    """The message of the refusal; None if the data is valid and survives a round trip."""
    try:
        document = case.decode(data)
    except (InvalidInput, Unsupported) as error:
        return error.message
    assert case.decode(case.encode(document)) == document
    return None


def mutated(case: Case, chance: random.Random) -> bytes:
    """The example with one to three faults, in its tree or in its bytes."""
    data = case.plain()
    if chance.random() < 0.5:
        for _ in range(chance.randint(1, 3)):
            path = chance.choice(list(places(data)))
            holder = parent(data, path)
            kind = chance.random()
            if kind < 0.5:
                holder[path[-1]] = copy.deepcopy(chance.choice(JUNK))
            elif kind < 0.75:
                holder.pop(path[-1])
            elif isinstance(holder, dict):
                holder[str(chance.choice(JUNK))[:20]] = copy.deepcopy(chance.choice(JUNK))
        return json.dumps(data).encode()
    text = bytearray(json.dumps(data).encode())
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(text))
        end = start + chance.randrange(1, 40)
        text[start:end] = chance.choice(
            [b"", bytes([chance.randrange(256)]), text[start:end] * 2, text[end : end + 9], b"[{"]
        )
    return bytes(text[: chance.randrange(1, 4 * len(text))])


@every_kind
def test_ten_thousand_faults_are_refused_in_words_or_harmless(case: Case) -> None:
    chance = random.Random(20)
    refused = 0
    for _ in range(10_000):
        data = mutated(case, chance)
        message = refusal(case, data)
        refused += message is not None
        assert message is None or message.startswith(f"{case.name}: "), data
        assert message is None or len(message) < 1500, data
    assert refused > 5_000
