import json
from dataclasses import replace

import numpy as np
import pytest

from anabranch_server.oip import InferEncoder, ReplyForm
from anabranch_server.oip.encoding import _HEADS
from anabranch_testing.versions import declared_version
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import DATATYPES

SERVED = declared_version(
    [("x", "FP32", (-1, 4))],
    [
        ("y", "FP32", (-1, 1)),
        ("ids", "INT64", (-1,)),
        ('n%d "q"', "BOOL", (-1,)),
        ("words", "BYTES", (-1,)),
        ("h", "FP16", (-1,)),
        ("b", "BF16", (-1,)),
    ],
    name="ctr",
)
Y = np.array([[0.5], [1e-7]], np.float32)
IDS = np.array([2**62, -1], np.int64)
FLAGS = np.array([True, False])
WORDS = np.array(["größe".encode(), b""], np.object_)
HALVES = np.array([0.5, 1.5], np.float16)
BRAINS = np.array([0x3F80, 0x4000], np.uint16)
OUTPUTS = (Y, IDS, FLAGS, WORDS, HALVES, BRAINS)


def test_json_outputs_carry_their_data_flat() -> None:
    reply = InferEncoder().encode(
        SERVED, (0, 1, 2, 3), ReplyForm("r-1", (False,) * 4), (Y, IDS, FLAGS, WORDS)
    )

    assert reply.tensors == []
    assert reply.size == len(reply.head)
    document = json.loads(reply.head)
    assert np.array_equal(np.array(document["outputs"][0].pop("data"), np.float32), Y.ravel())
    assert document == {
        "model_name": "ctr",
        "model_version": "42",
        "id": "r-1",
        "parameters": {"delta": 17},
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [2, 1]},
            {"name": "ids", "datatype": "INT64", "shape": [2], "data": IDS.tolist()},
            {"name": 'n%d "q"', "datatype": "BOOL", "shape": [2], "data": [True, False]},
            {"name": "words", "datatype": "BYTES", "shape": [2], "data": ["größe", ""]},
        ],
    }


def test_binary_outputs_stand_behind_the_json_in_order() -> None:
    reply = InferEncoder().encode(SERVED, (), ReplyForm(None, (True,) * 6), OUTPUTS)

    document = json.loads(reply.head)
    assert "id" not in document
    sizes = [output["parameters"]["binary_data_size"] for output in document["outputs"]]
    assert sizes == [8, 16, 2, 15, 4, 4] == [len(tensor) for tensor in reply.tensors]
    assert reply.size == len(reply.head) + sum(sizes)
    assert reply.tensors == [
        Y.tobytes(),
        IDS.tobytes(),
        b"\x01\x00",
        b"\x07\0\0\0" + "größe".encode() + b"\0\0\0\0",
        HALVES.tobytes(),
        BRAINS.tobytes(),
    ]


def test_json_and_binary_outputs_mix_in_the_order_wanted() -> None:
    reply = InferEncoder().encode(SERVED, (1, 0), ReplyForm(None, (True, False)), (IDS, Y))

    names = [output["name"] for output in json.loads(reply.head)["outputs"]]
    assert names == ["ids", "y"]
    assert reply.tensors == [IDS.tobytes()]


def test_not_a_number_and_infinities_are_bare_tokens() -> None:
    odd = np.array([[np.nan], [np.inf], [-np.inf]], np.float32)

    reply = InferEncoder().encode(SERVED, (0,), ReplyForm(None, (False,)), (odd,))

    assert reply.head.endswith(b'"shape":[3,1],"data":[NaN,Infinity,-Infinity]}]}')


@pytest.mark.parametrize("in_binary", [True, False])
def test_no_rows_are_answered_as_no_rows(in_binary: bool) -> None:
    none = np.zeros((0, 1), np.float32)

    reply = InferEncoder().encode(SERVED, (0,), ReplyForm(None, (in_binary,)), (none,))

    output = json.loads(reply.head)["outputs"][0]
    assert output["shape"] == [0, 1]
    assert output.get("data", []) == []
    assert b"".join(reply.tensors) == b""


def test_any_memory_order_is_answered_in_row_major_order() -> None:
    served = declared_version([("x", "FP32", (-1,))], [("z", "FP64", (-1, 3))])
    turned = np.asfortranarray(np.arange(6.0).reshape(2, 3))

    for in_binary in (True, False):
        reply = InferEncoder().encode(served, (), ReplyForm(None, (in_binary,)), (turned,))
        if in_binary:
            assert reply.tensors == [np.arange(6.0).tobytes()]
        else:
            assert json.loads(reply.head)["outputs"][0]["data"] == [0, 1, 2, 3, 4, 5]


def test_strings_that_are_not_text_need_binary() -> None:
    odd = np.array([b"\xff\xfe"], np.object_)
    encoder = InferEncoder()

    with pytest.raises(InvalidInput, match="output 'words' is not UTF-8"):
        encoder.encode(SERVED, (3,), ReplyForm(None, (False,)), (odd,))
    assert encoder.encode(SERVED, (3,), ReplyForm(None, (True,)), (odd,)).tensors == [
        b"\x02\0\0\0\xff\xfe"
    ]


def test_each_snapshot_has_its_own_head() -> None:
    encoder = InferEncoder()
    heads = []
    for delta in (1, 2):
        served = replace(SERVED, snapshot=replace(SERVED.snapshot, delta=delta))
        for _ in range(2):
            reply = encoder.encode(served, (0,), ReplyForm(None, (True,)), (Y,))
            heads.append(json.loads(reply.head)["parameters"]["delta"])

    assert heads == [1, 1, 2, 2]


def test_a_rank_other_than_the_declared_one_is_answered_as_it_is() -> None:
    flat = np.array([1, 2, 3], np.float32)

    reply = InferEncoder().encode(SERVED, (0,), ReplyForm("7", (True,)), (flat,))

    assert json.loads(reply.head)["outputs"][0]["shape"] == [3]


def test_heads_are_not_kept_without_bound() -> None:
    encoder = InferEncoder()
    served = declared_version(
        [("x", "FP32", (-1,))], [(f"o{index}", "BOOL", (-1,)) for index in range(64)]
    )
    flag = np.array([True])
    for first in range(64):
        for second in range(64):
            if first != second:
                encoder.encode(served, (first, second), ReplyForm(None, (True,) * 2), (flag, flag))

    assert len(encoder._heads) <= 2 * _HEADS


def test_every_datatype_has_a_binary_form() -> None:
    for datatype, dtype in DATATYPES.items():
        served = declared_version([("x", "FP32", (-1,))], [("o", datatype, (-1,))])
        values = np.array([b"a", b"b"], dtype) if datatype == "BYTES" else np.zeros(2, dtype)

        reply = InferEncoder().encode(served, (), ReplyForm(None, (True,)), (values,))

        assert json.loads(reply.head)["outputs"][0]["datatype"] == datatype
