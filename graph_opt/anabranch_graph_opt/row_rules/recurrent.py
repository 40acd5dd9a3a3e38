"""Recurrent layers: they run along the steps, so rows have to be the samples beside them."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import Axis, Flow, Mixing, State, plain, space_of
from anabranch_graph_opt.row_rules.broadcasting import carried_by, same_carrier
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]

_LENGTHS: Final = 4
_FIRST_STATE: Final = 5
_FIRST_CELL: Final = 6


def _recurrent(visit: Visit) -> Sequence[State]:
    for i in (1, 2, 3, 7):
        if visit.has(i):
            visit.fixed(i)
    samples_first = bool(visit.integer("layout", 0))
    given = [i for i in (0, _LENGTHS, _FIRST_STATE, _FIRST_CELL) if visit.has(i)]
    flows = same_carrier([visit.data(i) for i in given])
    steps = flows[0]
    if steps.rank != 3:
        raise Mixing("runs over a tensor that is not [steps, samples, features]")
    samples = 0 if samples_first else 1
    places = {0: samples, _LENGTHS: 0, _FIRST_STATE: samples, _FIRST_CELL: samples}
    for i, flow in zip(given, flows, strict=True):
        _check_samples(visit, i, flow, places[i], steps.axes[samples])
    size = plain(visit.integer("hidden_size", 0)) if visit.integer("hidden_size", 0) else None
    width = size if size is not None else plain(visit.facts.unknown())
    both = plain(2 if visit.node.attributes.get_string("direction", "") == "bidirectional" else 1)
    count, row = steps.axes[1 if samples_first else 0], steps.axes[samples]
    every: list[Axis] = [row, count, both, width] if samples_first else [count, both, row, width]
    last: list[Axis] = [row, both, width] if samples_first else [both, row, width]
    return [
        carried_by(every, flows),
        carried_by(last, flows),
        carried_by(last, flows),
    ]


def _check_samples(visit: Visit, index: int, flow: Flow, place: int, samples: Axis) -> None:
    if flow.row_axis not in (None, place):
        raise Mixing(
            f"runs along axis {flow.row_axis} of {visit.name(index)}, which holds the rows"
        )
    own = flow.axes[place]
    if own != samples and {space_of(own), space_of(samples)} != {None}:
        raise Mixing(f"takes {visit.name(index)} from other rows than its steps")


def _reversed_sequence(visit: Visit) -> Sequence[State]:
    batch, time = visit.integer("batch_axis", 1), visit.integer("time_axis", 0)
    data, lengths = same_carrier([visit.data(0), visit.data(1)])
    visit.off_rows(0, [time], "reverses")
    if lengths.axes[0] != data.axes[batch]:
        raise Mixing("takes lengths from other rows than its data")
    return [carried_by(data.axes, [data, lengths])]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "ReverseSequence": _reversed_sequence,
}
