"""From a plan, its graphs and the comparison to a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.optimized import LookupVerdict
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport
from anabranch_graph_opt.reporting.report import (
    GraphRole,
    Place,
    Report,
    ReportedBuffer,
    ReportedGraph,
    ReportedInput,
    ReportedLookup,
    ReportedParity,
    ReportedTable,
)
from anabranch_wire.document_fields import RowType
from anabranch_wire.plan import Plan, PlanTable
from anabranch_wire.tensors import TensorSpec

__all__ = ["Outcome", "graph_of", "make_report"]

_ELEMENT_BYTES: Final[Mapping[RowType, int]] = {"f32": 4, "f16": 2, "bf16": 2, "int8": 1}
_INT8_HEADER: Final = 4
"""Bytes of the scale and bias of a row."""
_PLACES: Final[Mapping[GraphRole, Place]] = {
    "prelude": "prelude", "user": "user", "dense": "dense", "whole": "dense",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What became of a model, as its parts know it.

    Attributes:
        inputs: of the original.
        verdicts: its lookups.
        table_bytes: table of a verdict -> bytes that it has in the model.
        parity: what the comparison gave; None where nothing was changed.
        budget: that it was held to.
        plan: None where nothing was cut.
        graphs: that run.
        notes: what else a modeller should know.
    """

    inputs: Sequence[TensorSpec]
    verdicts: Sequence[LookupVerdict]
    table_bytes: Mapping[str, int]
    parity: ParityReport | None
    budget: ParityBudget
    plan: Plan | None
    graphs: Sequence[ReportedGraph]
    notes: Sequence[str] = ()


def graph_of(role: GraphRole, path: Path) -> ReportedGraph:
    """Return what a report says of a graph file.

    Raises:
        AnabranchError: it is no ONNX file.
    """
    graph = open_model(path).graph
    beside = path.with_name(f"{path.name}.data")
    return ReportedGraph(
        role=role,
        file=path.name,
        nodes=sum(1 for _ in ir.traversal.RecursiveGraphIterator(graph)),
        bytes=path.stat().st_size + (beside.stat().st_size if beside.is_file() else 0),
        inputs=tuple(str(v.name) for v in graph.inputs if v.name not in graph.initializers),
        outputs=tuple(str(value.name) for value in graph.outputs),
    )


def make_report(
    model: str, outcome: Outcome, structure_hash: str | None, seconds: float, peak_bytes: int
) -> Report:
    """Return the report on a model.

    Args:
        model: name of it.
        outcome: what became of it.
        structure_hash: of the graph without its weights.
        seconds: that it took.
        peak_bytes: most memory that the process had meanwhile.
    """
    plan = outcome.plan
    return Report(
        model=model,
        lookups=tuple(_lookup(one, outcome.table_bytes) for one in outcome.verdicts),
        parity=_parity(outcome.parity, outcome.budget),
        structure_hash=structure_hash,
        seconds=round(seconds, 3),
        peak_bytes=peak_bytes,
        inputs=tuple(_input(spec, outcome) for spec in outcome.inputs),
        tables=() if plan is None else _tables(plan),
        buffers=()
        if plan is None
        else tuple(
            ReportedBuffer(name=one.name, side=one.side, dtype=one.dtype, columns=one.columns)
            for one in plan.buffers
        ),
        graphs=tuple(outcome.graphs),
        notes=tuple(outcome.notes),
    )


def _lookup(verdict: LookupVerdict, table_bytes: Mapping[str, int]) -> ReportedLookup:
    return ReportedLookup(
        node=verdict.node,
        table=verdict.table,
        rows=verdict.rows,
        dim=verdict.dim,
        bytes=table_bytes[verdict.table],
        ids=verdict.ids,
        cut=verdict.cut,
        reason=verdict.reason,
    )


def _parity(parity: ParityReport | None, budget: ParityBudget) -> ReportedParity:
    return ReportedParity(
        max_abs_diff=0.0 if parity is None else parity.max_abs_diff,
        cases=0 if parity is None else parity.cases,
        refused=0 if parity is None else parity.refused,
        rank_agreement=1.0 if parity is None else parity.rank_agreement,
        budget_max_abs_diff=budget.max_abs_diff,
        budget_rank_agreement=budget.min_rank_agreement,
    )


def _input(spec: TensorSpec, outcome: Outcome) -> ReportedInput:
    plan = outcome.plan
    goes: dict[Place, None] = {}
    if plan is not None and any(one.ids.input == spec.name for one in plan.lookups):
        goes["lookups"] = None
    for graph in outcome.graphs:
        if spec.name in graph.inputs:
            goes[_PLACES[graph.role]] = None
    return ReportedInput(
        name=spec.name,
        datatype=spec.datatype,
        shape=spec.shape,
        is_user=plan is not None and spec.name in plan.user_inputs,
        goes=tuple(goes),
    )


def _tables(plan: Plan) -> tuple[ReportedTable, ...]:
    counts = [0] * len(plan.tables)
    for lookup in plan.lookups:
        counts[lookup.table] += 1
    return tuple(
        ReportedTable(
            name=table.name,
            rows=table.rows,
            dim=table.dim,
            dtype=table.dtype,
            bytes=_bytes(table),
            lookups=count,
        )
        for table, count in zip(plan.tables, counts, strict=True)
    )


def _bytes(table: PlanTable) -> int:
    header = _INT8_HEADER if table.dtype == "int8" else 0
    return table.rows * (table.dim * _ELEMENT_BYTES[table.dtype] + header)
