import io
import json
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from anabranch_model_store.comparing import check_answers
from anabranch_model_store.npz_files import read_npz
from anabranch_model_store.version_files import verify_version
from anabranch_model_store.warmup_files import Array, Sample, read_samples
from anabranch_wire.errors import AnabranchError, InvalidInput, TooLarge
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import TensorSpec

INPUTS = (
    TensorSpec("ids", "INT64", (-1,)),
    TensorSpec("x", "FP32", (-1, 2)),
    TensorSpec("words", "BYTES", (-1,)),
)
OUTPUTS = (TensorSpec("p", "FP32", (-1, 1)),)
ARRAYS: dict[str, Array] = {
    "ids": np.arange(3),
    "x": np.ones((3, 2), np.float32),
    "words": np.array(["a", "é", ""]),
    "expected.p": np.zeros((3, 1), np.float32),
}


def samples(folder: Path) -> tuple[Sample, ...]:
    return read_samples(verify_version(folder, Snapshot("m", 1)), INPUTS, OUTPUTS)


def save(folder: Path, **arrays: Array | None) -> Path:
    (folder / "warmup").mkdir(exist_ok=True)
    kept = {key: value for key, value in {**ARRAYS, **arrays}.items() if value is not None}
    np.savez(folder / "warmup" / "a.npz", **kept)  # type: ignore[arg-type]  # of many types
    return folder


def save_json(folder: Path, text: str) -> Path:
    (folder / "warmup").mkdir(exist_ok=True)
    (folder / "warmup" / "b.json").write_text(text)
    return folder


def request(**changes: object) -> str:
    ids = {"name": "ids", "shape": [2], "datatype": "INT64", "data": [1, 2], **changes}
    x = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [3, 4]]}
    words = {"name": "words", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]}
    return json.dumps({"id": "1", "inputs": [ids, x, words], "outputs": [{"name": "p"}]})


def test_arrays_and_expected_answers_come_from_npz(tmp_path: Path) -> None:
    (sample,) = samples(save(tmp_path))
    assert sample.name == "warmup/a.npz"
    assert list(sample.inputs) == ["ids", "x", "words"]
    assert sample.inputs["words"].tolist() == [b"a", "é".encode(), b""]
    assert sample.expected["p"].shape == (3, 1)


def test_arrays_of_other_byte_orders_and_layouts_are_the_same(tmp_path: Path) -> None:
    wide = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(3, 2))
    words = np.array([b"a", b"b", b""])
    (sample,) = samples(save(tmp_path, x=wide, ids=np.arange(3).astype(">i8"), words=words))
    assert sample.inputs["ids"].tolist() == [0, 1, 2]
    assert sample.inputs["ids"].dtype == np.dtype("<i8")
    assert sample.inputs["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert sample.inputs["words"].tolist() == [b"a", b"b", b""]


def test_a_protocol_request_comes_from_json(tmp_path: Path) -> None:
    (sample,) = samples(save_json(tmp_path, request()))
    assert sample.inputs["ids"].tolist() == [1, 2]
    assert sample.inputs["x"].tolist() == [[1, 2.5], [3, 4]]
    assert sample.inputs["words"].tolist() == [b"a", "é".encode()]
    assert sample.expected == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": None}, "input 'ids' is missing"),
        ({"other": np.zeros(3)}, "'other' is neither an input nor expected.<output>"),
        ({"expected.q": np.zeros(3)}, "'expected.q' is neither"),
        ({"ids": np.zeros(3, np.int32)}, "found elements of int32; expected int64 (INT64)"),
        ({"x": np.zeros((3, 3), np.float32)}, "found shape [3, 3]; expected [-1, 2]"),
        ({"x": np.zeros(3, np.float32)}, "found shape [3]"),
        ({"words": np.zeros(3)}, "expected object (BYTES)"),
        ({"expected.p": np.zeros((3, 1))}, "'expected.p': found elements of float64"),
        ({"ids": np.array([None] * 3)}, "elements are Python objects"),
        ({"ids": np.zeros(3, "i4,i4")}, "elements are Python objects or records"),
    ],
)
def test_npz_files_that_do_not_fit_the_model_are_refused(
    tmp_path: Path, changes: dict[str, Array | None], message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        samples(save(tmp_path, **changes))
    assert caught.value.message.startswith("warmup/a.npz: ")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no request in JSON"),
        ("[]", "no request in JSON"),
        ('{"inputs": []}', "input 'ids' is missing"),
        (request(name="idz"), "'idz': no such input; expected ['ids', 'words', 'x']"),
        (request(name="x", shape=[1, 2], datatype="FP32"), "is there twice"),
        (request(datatype="INT32"), "found 'INT32'; expected INT64"),
        (request(shape=[2, 1]), "found shape [2, 1]; expected [-1]"),
        (request(shape=[-2]), "found shape [-2]"),
        (request(shape=[10**12]), "too little data"),
        (request(data=[1]), "element"),
        (request(data=[1, 2.5]), "input 'ids'"),
        (request(data=["1", "2"]), "input 'ids'"),
        (request(data=None), "input 'ids'"),
        ("[" * 40, "no request in JSON"),
        ('{"inputs": [{"name": "ids", "shape": [2], "datatype": "INT64"}]}', "too little data"),
    ],
)
def test_json_requests_that_do_not_fit_the_model_are_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        samples(save_json(tmp_path, text))
    assert caught.value.message.startswith("warmup/b.json: ")
    assert message in caught.value.message


def test_an_archive_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.npz"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(257 * 1024 * 1024))
    with pytest.raises(TooLarge, match="269484032 bytes"):
        read_npz(bomb, "bomb.npz")
    claims = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        claims, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    )
    with zipfile.ZipFile(bomb, "w") as archive:
        archive.writestr("a.npy", claims.getvalue() + bytes(8))
    with pytest.raises(InvalidInput, match="8 bytes do not hold float64"):
        read_npz(bomb, "bomb.npz")


def test_ten_thousand_mutations_are_read_or_refused(tmp_path: Path) -> None:
    data = (save(tmp_path) / "warmup" / "a.npz").read_bytes()
    mutant = tmp_path / "mutant.npz"
    choose = random.Random(3)
    refusals = []
    for _ in range(10_000):
        mutated = bytearray(data)
        for _ in range(choose.randint(1, 3)):
            at = choose.randrange(len(mutated))
            if choose.random() < 0.8:
                mutated[at] = choose.randrange(256)
            else:
                del mutated[at : at + choose.randint(1, 20)]
        mutant.write_bytes(mutated)
        try:
            read_npz(mutant, "mutant.npz")
        except AnabranchError as error:
            refusals.append(error)
    assert 5000 < len(refusals) < 10_000
    assert {type(error) for error in refusals} <= {InvalidInput, TooLarge}


def test_answers_may_differ_by_the_budget_only() -> None:
    expected: dict[str, Array] = {"p": np.array([[0.5], [np.nan], [1000.0]], np.float32)}
    found: dict[str, Array] = {"p": np.array([[0.505], [np.nan], [1009.0]], np.float32)}
    check_answers(found, expected, 0.01, "a.npz")
    with pytest.raises(
        InvalidInput,
        match=r"a\.npz: output 'p' at \[0, 0\]: expected 0\.5, found 0\.505; 2 of 3 elements",
    ):
        check_answers(found, expected, 0.001, "a.npz")
    with pytest.raises(InvalidInput, match=r"expected shape \[3, 1\], found \[1, 1\]"):
        check_answers({"p": found["p"][:1]}, expected, 0.01, "a.npz")
    endless: dict[str, Array] = {"p": np.array([np.inf, -np.inf], np.float32)}
    check_answers(endless, endless, 0.0, "a.npz")
    with pytest.raises(InvalidInput, match=r"at \[1\]: expected -inf, found 1"):
        check_answers({"p": np.array([np.inf, 1.0], np.float32)}, endless, 0.1, "a.npz")
    words: dict[str, Array] = {"w": np.array([b"a", b"b"], object)}
    check_answers(words, words, 0.0, "a.npz")
    with pytest.raises(InvalidInput, match=r"at \[1\]: expected b'b', found b'c'"):
        check_answers({"w": np.array([b"a", b"c"], object)}, words, 0.0, "a.npz")
