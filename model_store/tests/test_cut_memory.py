"""How much memory a version with large tables beside its graph takes while it is looked at."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

TABLES, ROWS, DIM = 5, 150_000, 64
MIB = 1 << 20
TABLE_BYTES = ROWS * DIM * 4

LOAD = """
import sys
from pathlib import Path
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_versions import CutVersion
from anabranch_model_store.preparation import prepare_version
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_wire.names import ModelName

def peak():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024

root = Path(sys.argv[1])
folder = scan_repository(root / "models").models[ModelName("m")]
settings = StoreSettings(
    SegmentCache(root / "cache" / "segments", 1 << 40), BuiltGraphs(root / "cache" / "cut", 1 << 30)
)
runner = OrtModelRunner()
before = peak()
prepared = prepare_version(folder, 1, read_deployment(folder.path), runner, store=settings)
assert isinstance(prepared.cut, CutVersion), prepared.notes
assert not any(not verdict.cut for verdict in prepared.cut.verdicts)
print(peak() - before)
"""


def write(folder: Path) -> None:
    """Write a model whose tables lie beside it, a piece at a time."""
    folder.mkdir(parents=True)
    initializers, nodes = [], []
    row = (np.arange(DIM, dtype=np.float32) - DIM / 2) / DIM
    with (folder / "weights.bin").open("wb") as file:
        for number in range(TABLES):
            table = TensorProto(
                name=f"t{number}",
                data_type=TensorProto.FLOAT,
                dims=[ROWS, DIM],
                data_location=TensorProto.EXTERNAL,
            )
            entries = {"location": "weights.bin", "offset": file.tell(), "length": TABLE_BYTES}
            for key, value in entries.items():
                table.external_data.add(key=key, value=str(value))
            initializers.append(table)
            nodes.append(helper.make_node("Gather", [f"t{number}", f"i{number}"], [f"r{number}"]))
            for first in range(0, ROWS, 10_000):
                numbers = np.arange(first, first + 10_000, dtype=np.float32)[:, None]
                file.write((numbers / ROWS + row).astype(np.float32).tobytes())
    rows = [f"r{number}" for number in range(TABLES)]
    nodes += [
        helper.make_node("Concat", rows, ["all"], axis=1),
        helper.make_node("MatMul", ["all", "w"], ["y"]),
    ]
    ones = np.full((TABLES * DIM, 1), 1 / 64, np.float32)
    initializers.append(numpy_helper.from_array(ones, "w"))
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info(f"i{n}", TensorProto.INT64, ["N"]) for n in range(TABLES)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1])],
        initializers,
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
    onnx.save(model, folder / "model.onnx")


def test_looking_at_a_version_takes_no_more_than_its_rows_once(tmp_path: Path) -> None:
    write(tmp_path / "models" / "m" / "1")

    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    # Rows of the segment that requests touch are mapped, perhaps in large pages; the original's
    # tables are not. Beside these there are chunks of a few MiB, and what compares.
    assert int(done.stdout) < 1.5 * TABLES * TABLE_BYTES
    assert int(done.stdout) < TABLES * TABLE_BYTES + 100 * MIB
