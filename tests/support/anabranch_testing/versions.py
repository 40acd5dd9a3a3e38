"""Served versions without a graph behind them, for tests of decoders and encoders."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from anabranch_runtime.admission import InputRules
from anabranch_runtime.models import DenseModel, RowLayout
from anabranch_runtime.served import ServedVersion
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import GroupSettings, QueueSettings
from anabranch_wire.snapshots import Snapshot
from anabranch_wire.tensors import Datatype, TensorSpec

__all__ = ["declared_version"]

Declared = tuple[str, Datatype, tuple[int, ...]]


@dataclass(frozen=True)
class _Settings:
    """As much of a session group as a decoder asks."""

    settings: GroupSettings


def declared_version(
    inputs: Sequence[Declared],
    outputs: Sequence[Declared] = (("y", "FP32", (-1, 1)),),
    *,
    name: str = "m",
    version: int = 42,
    delta: int = 17,
    queue: QueueSettings | None = None,
) -> ServedVersion:
    """Return a version with these tensors; open first axes carry the rows."""
    model = DenseModel(
        Path(f"/models/{name}/{version}/model.onnx"),
        tuple(TensorSpec(*declared) for declared in inputs),
        tuple(TensorSpec(*declared) for declared in outputs),
        RowLayout(
            True,
            1,
            tuple(0 if shape[:1] == (-1,) else None for _, _, shape in inputs),
            tuple(0 if shape[:1] == (-1,) else None for _, _, shape in outputs),
        ),
    )
    group = _Settings(GroupSettings(queue=queue or QueueSettings()))
    return ServedVersion(
        snapshot=Snapshot(name, version, delta),
        model=model,
        rules=InputRules(model.inputs, model.rows.input_axes),
        output_index={spec.name: i for i, spec in enumerate(model.outputs)},
        group=cast(SessionGroup, group),
    )
