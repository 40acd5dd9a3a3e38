import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from anabranch_publish import Rows, publish_version
from anabranch_publish.tensor_files import write
from anabranch_server.cli import app
from anabranch_testing.graphs import scale_model
from anabranch_wire import delta
from anabranch_wire.delta import Delta
from anabranch_wire.tensor_files import Tensor


@pytest.fixture
def model_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    rows = Rows(keys=np.arange(3), values=np.zeros((3, 2), np.float32))
    publish_version(tmp_path / "ctr", tmp_path / "m.onnx", version=42, tables={"t": rows})
    monkeypatch.chdir(tmp_path)
    return tmp_path / "ctr"


def run(*arguments: str) -> tuple[int, str, str]:
    said = CliRunner().invoke(app, list(arguments))
    if said.exception is not None and not isinstance(said.exception, SystemExit):
        raise said.exception
    return said.exit_code, said.stdout, said.stderr


def published(model_dir: Path, sequence: int) -> tuple[Delta, Path]:
    folder = model_dir / f"42/deltas/{sequence:08}"
    document = delta.decode((folder / "delta.json").read_bytes())
    return document, folder / document.attempt


def test_everything_that_a_delta_has(model_dir: Path, tmp_path: Path) -> None:
    keys = np.array([1, 2])
    save_file({"keys": keys, "values": np.ones((2, 2), np.float16)}, "rows.safetensors")
    np.savez("more.npz", keys=keys + 2, values=np.ones((2, 3), np.float32), deleted=[9])
    np.save("gone.npy", [7, 8])
    save_file({"w": np.ones(2, np.float32)}, "dense.safetensors")
    np.savez("more_dense.npz", v=np.ones(3, np.float64))
    Path("i.parquet").write_bytes(b"PAR1")
    Path("g.json").write_text('{"request": {"candidates": {"id": [1]}}, "scores": {"c": [0.5]}}')

    code, said, _ = run(
        "publish-delta", "ctr", "--version", "42", "--json", "--step", "7", "--event-time", "9.5",
        "--table", "t=rows.safetensors", "--table", "u=more.npz", "--delete", "t=gone.npy",
        "--dense", "dense.safetensors", "--dense", "more_dense.npz", "--complete",
        "--items", "items=i.parquet", "--golden", "g.json",
    )  # fmt: skip

    document, attempt = published(model_dir, 1)
    result = json.loads(said)
    assert (code, result["version"], result["sequence"]) == (0, 42, 1)
    assert result["bytes"] == sum(p.stat().st_size for p in attempt.rglob("*") if p.is_file())
    assert set(result) == {"version", "sequence", "bytes", "seconds"}
    assert (document.step, document.event_time) == (7, 9.5)
    told = [(t.name, t.dtype, t.upserts, t.deletes) for t in document.tables]
    assert told == [("t", "f16", 2, 2), ("u", "f32", 2, 1)]
    assert document.dense is not None
    assert (document.dense.tensors, document.dense.complete) == (("w", "v"), True)
    assert [item.name for item in document.item_tables] == ["items"]
    assert len(document.golden) == 1


def test_bf16_rows_and_a_file_of_deletes(model_dir: Path, tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0x4000]], np.uint16)
    write(
        tmp_path,
        "rows.safetensors",
        {
            "keys": Tensor("U64", (1,), (np.array([2**64 - 1], np.uint64),)),
            "values": Tensor("BF16", (1, 2), (bits,)),
        },
    )
    np.savez("gone.npz", deleted=np.array([3]))
    code, said, _ = run(
        "publish-delta", str(model_dir), "--version", "42", "--table", "t=rows.safetensors"
    )
    assert (code, said.startswith("published delta 1 of ctr version 42 (")) == (0, True)
    assert published(model_dir, 1)[0].tables[0].dtype == "bf16"
    assert published(model_dir, 1)[0].tables[0].key_dtype == "uint64"
    url = f"file://{model_dir}"
    assert run("publish-delta", url, "--version", "42", "--table", "t=gone.npz")[0] == 0
    assert published(model_dir, 2)[0].tables[0].deletes == 1


def test_deltas_are_merged_and_replaced(model_dir: Path) -> None:
    for key in (1, 2):
        np.savez("rows.npz", keys=[key], values=np.full((1, 2), key, np.float32))
        run("publish-delta", "ctr", "--version", "42", "--table", "t=rows.npz", "--step", str(key))
    code, said, _ = run("publish-delta", "ctr", "--version", "42", "--compact", "--json")
    assert (code, json.loads(said)["sequence"]) == (0, 3)
    document, attempt = published(model_dir, 3)
    assert (document.replaces_from, document.step) == (1, 2)
    assert sorted(load_file(attempt / "0000.safetensors")["keys"].tolist()) == [1, 2]
    more = ["--table", "t=rows.npz", "--replaces-from", "2"]
    assert run("publish-delta", "ctr", "--version", "42", *more)[0] == 0
    assert published(model_dir, 4)[0].replaces_from == 2


def test_an_attempt_is_published_once(model_dir: Path) -> None:
    np.savez("rows.npz", keys=[1], values=np.ones((1, 2), np.float32))
    for attempt, sequence in (("a" * 16, 1), ("a" * 16, 1), ("b" * 16, 2)):
        told = ["--version", "42", "--table", "t=rows.npz", "--attempt", attempt, "--json"]
        assert json.loads(run("publish-delta", "ctr", *told)[1])["sequence"] == sequence
    assert published(model_dir, 2)[0].attempt == "b" * 16


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--version", "42"], 2, "nothing to publish: say what has changed"),
        (["--version", "42", "--complete"], 2, "nothing to publish"),
        (["--version", "43", "--step", "1"], 1, "there is no version 43"),
        (["--version", "42", "--table", "t"], 2, "--table t: expected NAME=FILE"),
        (["--version", "42", "--table", "=x.npz"], 2, "--table =x.npz: expected NAME=FILE"),
        (["--version", "42", "--delete", "t=a", "--delete", "t=b"], 2, "--delete t: is there twi"),
        (["--version", "42", "--table", "t=none.npz"], 1, "none.npz: no such file"),
        (["--version", "42", "--table", "t=m.onnx"], 2, "m.onnx: expected .safetensors or .npz"),
        (["--version", "42", "--table", "t=junk.npz"], 2, "junk.npz: not .npz"),
        (
            ["--version", "42", "--table", "t=junk.safetensors"],
            2,
            "junk.safetensors: no safetensors file",
        ),
        (["--version", "42", "--table", "t=keys.npz"], 2, "keys.npz: expected keys and values"),
        (["--version", "42", "--table", "t=both.npz"], 2, "key 1 has a row, and is deleted too"),
        (["--version", "42", "--table", "t=nan.npz"], 2, "the row of key 1 has a NaN"),
        (["--version", "42", "--table", "t=wide.npz"], 2, "in the version they have 2"),
        (["--version", "42", "--table", "t=real.npz"], 2, "keys: expected integers, found float64"),
        (["--version", "42", "--delete", "t=none.npy"], 1, "none.npy: no such file"),
        (["--version", "42", "--delete", "t=junk.npz"], 2, "junk.npz: not .npy"),
        (["--version", "42", "--delete", "t=wide.npz"], 2, "wide.npz: not .npy"),
        (["--version", "42", "--dense", "bf16.safetensors"], 2, "w is bf16; weights have the ty"),
        (["--version", "42", "--compact", "--step", "1"], 2, "--compact merges what is published"),
        (["--version", "42", "--compact"], 2, "there is nothing to merge"),
        (["--version", "42", "--step", "1", "--attempt", "x"], 2, "expected 16 of 0-9 a-f"),
        (["--version", "42", "--compact", "--attempt", "0" * 16], 2, "--compact merges what is"),
        (["--version", "42", "--delete", "v=gone.npy"], 2, "indexes by row number has no deletes"),
        (
            ["--version", "42", "--step", "1", "--replaces-from", "3"],
            2,
            "replaces_from 3: expected 1 to 1",
        ),
        (
            ["--version", "42", "--step", "1", "--notify", "h:1"],
            2,
            "expected http://HOST:PORT of an admin port",
        ),
    ],
)
def test_what_is_refused(model_dir: Path, arguments: list[str], code: int, said: str) -> None:
    for name in ("junk.npz", "junk.safetensors"):
        Path(name).write_bytes(b"junk" * 9)
    one = np.ones((1, 2), np.float32)
    np.savez("keys.npz", keys=[1])
    np.savez("both.npz", keys=[1], values=one, deleted=[1])
    np.savez("nan.npz", keys=[1], values=one * np.nan)
    np.savez("wide.npz", keys=[1], values=np.ones((1, 3), np.float32))
    np.save("gone.npy", [1])
    np.savez("real.npz", keys=[1.5], values=one)
    bits = Tensor("BF16", (1,), (np.ones(1, np.uint16),))
    write(model_dir.parent, "bf16.safetensors", {"w": bits})

    found = run("publish-delta", "ctr", *arguments)

    assert found[:2] == (code, "")
    assert said in found[2]
    assert not (model_dir / "42/deltas").exists()


def test_versions_are_published_to_urls_too(tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="needs fsspec")
    onnx = str(scale_model(tmp_path / "trained").path)
    code, said, _ = run("publish", "memory://of-a-command/ctr", onnx)
    assert (code, "at memory://of-a-command/ctr/1 (" in said) == (0, True)
    told = ["--version", "1", "--step", "1", "--json"]
    code, said, _ = run("publish-delta", "memory://of-a-command/ctr", *told)
    assert (code, json.loads(said)["sequence"]) == (0, 1)
    (tmp_path / "repository").mkdir()
    code, said, _ = run("publish", f"file://{tmp_path}/repository/ctr", onnx)
    assert (code, (tmp_path / "repository/ctr/1/manifest.json").exists()) == (0, True)
    code, _, error = run("publish", "nowhere://x/ctr", onnx)
    assert (code, "Protocol not known: nowhere" in error) == (1, True)
