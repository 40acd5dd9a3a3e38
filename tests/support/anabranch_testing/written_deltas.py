"""Deltas written as a trainer publishes them, byte by byte, and stores that they are applied to."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.store import KeyKind, RowType, SegmentBuilder
from anabranch_wire.delta import Base, Delta, DenseTensors, TableRows, encode
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.missing import Zeros
from anabranch_wire.plan import Graphs, Plan, PlanTable, Source
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.weight_targets import ToTable

__all__ = [
    "IDENTITY",
    "DeltaWriter",
    "RowsWritten",
    "StoreShape",
    "safetensors_bytes",
    "store_target",
]

IDENTITY = "sha256:" + "5b" * 32
_NAMES = {"f4": "F32", "f2": "F16", "f8": "F64", "i8": "I64", "u8": "U64", "u2": "BF16"}


def safetensors_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a safetensors file; arrays of uint16 are the bits of bfloat16."""
    header: dict[str, object] = {}
    data = b""
    for name, array in arrays.items():
        raw = np.ascontiguousarray(array).tobytes()
        entry = {"dtype": _NAMES[array.dtype.str[1:]], "shape": list(array.shape)}
        header[name] = entry | {"data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@dataclass(frozen=True)
class RowsWritten:
    """Rows of one table of a delta."""

    name: str
    keys: Sequence[int] | NDArray[Any]
    values: NDArray[Any]
    deleted: Sequence[int] | NDArray[Any] = ()
    key_dtype: Any = np.int64

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the file holds."""
        found = {"keys": np.asarray(self.keys, self.key_dtype), "values": self.values}
        if len(self.deleted):
            found["deleted"] = np.asarray(self.deleted, self.key_dtype)
        return found

    def declared(self, file: str) -> TableRows:
        """Return what delta.json says of it."""
        kind = {"f4": "f32", "f2": "f16", "u2": "bf16"}[self.values.dtype.str[1:]]
        return TableRows(
            name=self.name,
            file=file,
            dim=self.values.shape[1],
            dtype=kind,  # type: ignore[arg-type]  # to be refused, or a stand-in
            key_dtype="uint64" if self.key_dtype is np.uint64 else "int64",
            upserts=len(self.keys),
            deletes=len(self.deleted),
        )


@dataclass
class DeltaWriter:
    """Writes deltas into the folder of a version."""

    folder: Path
    identity: str = IDENTITY
    model: str = "m"
    version: int = 1
    numbers: list[int] = field(default_factory=list)
    attempt_name: str = "0123456789abcdef"

    def attempt(self, sequence: int) -> Path:
        """Return where the files of a delta lie."""
        return self.folder / "deltas" / f"{sequence:08}" / self.attempt_name

    def write(
        self,
        sequence: int,
        *rows: RowsWritten,
        dense: Mapping[str, NDArray[Any]] | None = None,
        replaces_from: int | None = None,
        **changes: Any,
    ) -> Delta:
        """Publish a delta."""
        contents = {f"{n:04}.safetensors": safetensors_bytes(r.arrays) for n, r in enumerate(rows)}
        if dense is not None:
            contents["dense.safetensors"] = safetensors_bytes(dense)
        place = self.attempt(sequence)
        place.mkdir(parents=True)
        for name, data in contents.items():
            (place / name).write_bytes(data)
        told: dict[str, Any] = {
            "format": 1, "kind": "delta", "model": self.model, "version": self.version,
            "sequence": sequence, "replaces_from": replaces_from or sequence,
            "base": Base(identity=self.identity, previous=sequence - 1),
            "attempt": place.name, "producer": "test", "created": 1000.0 + sequence,
            "step": sequence * 10, "event_time": 900.0 + sequence,
            "tables": tuple(r.declared(name) for r, name in zip(rows, contents, strict=False)),
            "dense": None if dense is None else DenseTensors(
                file="dense.safetensors", tensors=tuple(dense), complete=False
            ),
            "files": tuple(
                ListedFile(path=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
                for name, data in contents.items()
            ),
        }  # fmt: skip
        delta = Delta(**(told | changes))
        (place.parent / "delta.json").write_bytes(encode(delta))
        self.numbers.append(sequence)
        return delta


@dataclass(frozen=True)
class StoreShape:
    """One table of a store: `rows` of them, all zero."""

    name: str
    rows: int
    dim: int = 2
    keys: KeyKind = "hashed"
    row_type: RowType = "f32"


def store_target(
    root: Path,
    *tables: StoreShape,
    meaning: ModelMeaning | None = None,
    deployment: Deployment | None = None,
) -> DeltaTarget:
    """Return a version with a store, and no graph that takes weights."""
    segment = root / "rows.seg"
    with SegmentBuilder(root, segment.name) as builder:
        for one in tables:
            writer = builder.table(
                one.name, one.dim, rows=one.rows, row_type=one.row_type, keys=one.keys
            )
            keys = None if one.keys == "dense_id" else np.arange(one.rows, dtype=np.int64)
            writer.add(keys, np.zeros((one.rows, one.dim), np.float32))
        builder.finish()
    plan = Plan(
        format=1,
        source=Source(file="model.onnx", sha256="0" * 64),
        structure_hash="sha256:" + "0" * 64,
        graphs=Graphs(dense="model.onnx"),
        tables=tuple(
            PlanTable(
                name=one.name, file=segment.name, rows=one.rows, dim=one.dim, dtype=one.row_type,
                keys=one.keys, missing=Zeros(),
            )
            for one in tables
        ),
        weights={one.name: (ToTable(index=index),) for index, one in enumerate(tables)},
    )  # fmt: skip
    folder = root / "m" / "1"
    folder.mkdir(parents=True)
    rows = RowLayout(independent=False, min_rows=1, input_axes=(), output_axes=())
    return DeltaTarget(
        folder=folder,
        snapshot=Snapshot("m", 1),
        identity=IDENTITY,
        meaning=meaning or ModelMeaning(),
        deployment=deployment or Deployment(),
        model=DenseModel(folder / "model.onnx", (), (), rows),
        plan=plan,
        segment=segment,
        graphs=None,
        graph_note="its graph takes no new weights",
        runs=(),
        examples=(),
        ranking=None,
        user_inputs=(),
    )
