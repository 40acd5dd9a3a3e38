"""Operators on images and signals [samples, channels, positions...]: rows may only be samples."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import Axis, Flow, Mixing, State, axis_size, plain
from anabranch_graph_opt.row_rules.broadcasting import carried_by
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _samples(visit: Visit) -> Flow:
    """The first input, with rows at axis 0 or nowhere."""
    data = visit.data(0)
    if data.row_axis not in (None, 0):
        raise Mixing(f"takes axis {data.row_axis} of {visit.name(0)}, the rows, for positions")
    return data


def _conv(visit: Visit) -> Sequence[State]:
    data, weight = _samples(visit), visit.fixed(1)
    for i in range(2, len(visit.states)):
        if visit.has(i):
            visit.fixed(i)
    positions = _positions(visit, data, weight.axes[2:])
    return [carried_by([data.axes[0], weight.axes[0], *positions], [data])]


def _conv_transposed(visit: Visit) -> Sequence[State]:
    data, weight = _samples(visit), visit.fixed(1)
    if visit.has(2):
        visit.fixed(2)
    channels = axis_size(weight.axes[1]).constant
    width = plain(channels * visit.integer("group", 1)) if channels is not None else _new(visit)
    positions = [_new(visit) for _ in data.axes[2:]]
    return [carried_by([data.axes[0], width, *positions], [data])]


def _pool(visit: Visit) -> Sequence[State]:
    """A second output of MaxPool counts positions through the whole batch: no claim on it."""
    data = _samples(visit)
    kernel = [plain(size) for size in visit.integers("kernel_shape") or ()]
    positions = _positions(visit, data, kernel)
    return [carried_by([*data.axes[:2], *positions], [data])]


def _pool_all(visit: Visit) -> Sequence[State]:
    data = _samples(visit)
    return [carried_by([*data.axes[:2], *(() for _ in data.axes[2:])], [data])]


def _new(visit: Visit) -> Axis:
    return plain(visit.facts.unknown())


def _positions(visit: Visit, data: Flow, kernel: Sequence[Axis]) -> list[Axis]:
    """Sizes of the position axes; exact where everything is constant and padded explicitly."""
    count = data.rank - 2
    if count != len(kernel):
        raise Mixing("has a kernel of another rank than its data")
    ones, zeros = (1,) * count, (0,) * (2 * count)
    strides = visit.integers("strides") or ones
    dilations = visit.integers("dilations") or ones
    pads = visit.integers("pads") or zeros
    explicit = visit.node.attributes.get_string("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    axes: list[Axis] = []
    for i in range(count):
        size, width = (axis_size(f).constant for f in (data.axes[2 + i], kernel[i]))
        if size is None or width is None or not explicit or visit.integer("ceil_mode", 0):
            axes.append(_new(visit))
            continue
        reach = size + pads[i] + pads[count + i] - dilations[i] * (width - 1) - 1
        axes.append(plain(reach // strides[i] + 1))
    return axes


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("Conv", "ConvInteger"), _conv),
    "ConvTranspose": _conv_transposed,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), _pool_all),
}
