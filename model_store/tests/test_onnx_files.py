import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from anabranch_model_store.onnx_files import check_onnx_file
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound, TooLarge
from anabranch_wire.snapshots import Snapshot

BRANCHES = """
<ir_version: 8, opset_import: ["": 17, "local": 1]>
ranker (float[N, 2] x, bool c) => (float[N, 2] y)
<float[2] w = {1.0, 2.0}>
{
  z = local.Twice(x)
  y = If (c) <
    then_branch = then () => (float[N, 2] a) <float[2] inner = {3.0, 4.0}> { a = Add(z, inner) },
    else_branch = other () => (float[N, 2] b) { b = Add(z, w) }
  >
}
<domain: "local", opset_import: ["": 17]>
Twice (a) => (b) { b = Add(a, a) }
"""


def version(folder: Path) -> VersionFiles:
    return verify_version(folder, Snapshot("m", 1))


def write(folder: Path, model: onnx.ModelProto) -> VersionFiles:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return version(folder)


def external(location: str, **entries: str) -> onnx.ModelProto:
    """A model whose only weight, 8 bytes of FP32, lies in `location`."""
    model = onnx.parser.parse_model(BRANCHES)
    move(model.graph.initializer[0], location, **entries)
    return model


def move(tensor: onnx.TensorProto, location: str, **entries: str) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)


def test_a_file_with_its_weights_inside_may_be_opened(tmp_path: Path) -> None:
    files = write(tmp_path, onnx.parser.parse_model(BRANCHES))
    found = check_onnx_file(files, "model.onnx")
    assert found.path == (tmp_path / "model.onnx").resolve()
    assert found.external == ()
    assert found.bytes == (tmp_path / "model.onnx").stat().st_size


def test_weights_beside_the_file_are_counted(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(b"12345678" * 2)
    files = write(tmp_path, external("weights/w.bin", offset="8", length="8", checksum="x"))
    found = check_onnx_file(files, "model.onnx")
    assert found.external == ((tmp_path / "weights" / "w.bin").resolve(),)
    assert found.bytes == (tmp_path / "model.onnx").stat().st_size + 16


@pytest.mark.parametrize(
    "location",
    [
        "", "/etc/hostname", "../outside.bin", "a/../../outside.bin", "link.bin", "folder",
        "*/_ORT_MEM_ADDR_/*", "..\\outside.bin", "./w.bin", "w\x00.bin",
    ],
)  # fmt: skip
def test_weights_that_may_lie_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "1"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "outside.bin").write_bytes(b"12345678")
    (folder / "w.bin").write_bytes(b"12345678")
    files = write(folder, external(location))
    (folder / "link.bin").symlink_to("../outside.bin")
    with pytest.raises(InvalidInput, match=r"model\.onnx: external data of 'w': "):
        check_onnx_file(files, "model.onnx")


def test_weights_of_any_part_of_the_model_are_looked_at(tmp_path: Path) -> None:
    def main(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.initializer[0]

    def branch(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.node[1].attribute[0].g.initializer[0]

    def attribute(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.node[0].attribute.add(name="t").t

    def attributes(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.node[0].attribute.add(name="t").tensors.add()

    def function(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.functions[0].node[0].attribute.add(name="t").t

    def function_default(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.functions[0].attribute_proto.add(name="t").t

    def sparse(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.sparse_initializer.add().values

    def sparse_indices(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.sparse_initializer.add().indices

    def sparse_attribute(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.graph.node[0].attribute.add(name="t").sparse_tensor.values

    def training(model: onnx.ModelProto) -> onnx.TensorProto:
        return model.training_info.add().algorithm.initializer.add()

    (tmp_path / "outside.bin").write_bytes(b"12345678")
    places = (
        main, branch, attribute, attributes, function, function_default, sparse, sparse_indices,
        sparse_attribute, training,
    )  # fmt: skip
    for place in places:
        model = onnx.parser.parse_model(BRANCHES)
        move(place(model), "../outside.bin")
        files = write(tmp_path / place.__name__, model)
        with pytest.raises(InvalidInput, match="none of them empty"):
            check_onnx_file(files, "model.onnx")


@pytest.mark.parametrize(
    ("entries", "error", "message"),
    [
        ({"offset": "9"}, InvalidInput, "expected bytes 9 to 17, but the file has 16"),
        ({"length": "17"}, InvalidInput, "expected bytes 0 to 17, but the file has 16"),
        ({"offset": "-1"}, InvalidInput, "offset '-1'; expected a number of bytes"),
        ({"length": "1e3"}, InvalidInput, "length '1e3'"),
        ({"offset": "9" * 30}, InvalidInput, "offset"),
        ({"offset": "٣"}, InvalidInput, "offset"),
    ],
)
def test_weights_that_are_cut_off_are_found(
    tmp_path: Path, entries: dict[str, str], error: type[AnabranchError], message: str
) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    files = write(tmp_path, external("w.bin", **entries))
    with pytest.raises(error) as caught:
        check_onnx_file(files, "model.onnx")
    assert message in caught.value.message


def test_entries_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    model = external("w.bin")
    model.graph.initializer[0].external_data.add(key="location", value="../w.bin")
    with pytest.raises(InvalidInput, match="stands there twice"):
        check_onnx_file(write(tmp_path, model), "model.onnx")
    model = external("w.bin")
    model.graph.initializer[0].data_type = onnx.TensorProto.STRING
    with pytest.raises(InvalidInput, match="cannot be external"):
        check_onnx_file(write(tmp_path, model), "model.onnx")


def test_custom_operators_need_to_be_allowed(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(BRANCHES)
    model.graph.node.add(op_type="Gelu", domain="com.microsoft", input=["x"], output=["g"])
    check_onnx_file(write(tmp_path, model), "model.onnx")
    inner = model.graph.node[1].attribute[0].g
    inner.node.add(op_type="Leak", domain="evil", input=["x"], output=["h"])
    files = write(tmp_path, model)
    with pytest.raises(InvalidInput, match=r"custom operators evil\.Leak; .* \[custom_ops\]"):
        check_onnx_file(files, "model.onnx")
    check_onnx_file(files, "model.onnx", allow_custom_ops=True)


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model", b"\x0a", bytes(1000)])
def test_bytes_that_are_no_model_are_corrupt(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(InvalidInput, match=r"model\.onnx: no ONNX model"):
        check_onnx_file(version(tmp_path), "model.onnx")


def test_a_missing_or_oversized_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        check_onnx_file(version(tmp_path), "model.onnx")
    (tmp_path / "model.onnx").write_bytes(b"x")
    files = version(tmp_path)
    with (tmp_path / "model.onnx").open("r+b") as file:
        file.truncate(2**31)  # sparse: takes no space
    with pytest.raises(TooLarge, match="save its weights as external data"):
        check_onnx_file(files, "model.onnx")


def test_ten_thousand_mutations_are_opened_or_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    model = external("w.bin", offset="0", length="8")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((2, 2), np.float32), "v"))
    files = write(tmp_path, model)
    data = model.SerializeToString()
    choose = random.Random(5)
    refusals = []
    for _ in range(10_000):
        mutated = bytearray(data)
        at = choose.randrange(len(mutated))
        match choose.randrange(8):
            case 0:
                del mutated[at : at + choose.randint(1, 8)]
            case 1:
                mutated[at:at] = choose.randbytes(2)
            case _:  # most: lengths stay right, so the protobuf often does
                mutated[at] = choose.randrange(256)
        (tmp_path / "model.onnx").write_bytes(mutated)
        try:
            check_onnx_file(files, "model.onnx")
        except AnabranchError as error:
            refusals.append(error)
    assert 2000 < len(refusals) < 9000
    assert {type(error) for error in refusals} == {InvalidInput}
