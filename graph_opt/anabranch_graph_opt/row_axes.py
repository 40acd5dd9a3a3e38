"""Which axis of which input carries rows, as declared by the model's owner or by custom.

Without a declaration the row axis of an input is axis 0 where its size is symbolic. That holds only
if all such inputs share one symbol: an axis with another name may count something else (ids of
bags), and a wrong guess would cut requests in the wrong places.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from anabranch_graph_opt.signature import Signature
from anabranch_wire.errors import InvalidInput

__all__ = ["AxisKind", "InputAxis", "RowAxes", "resolve_row_axes"]

AxisKind = Literal["rows", "ids", "bag", "none"]


@dataclass(frozen=True, slots=True)
class InputAxis:
    """What axis 0 of an input counts: `inputs` of model.yaml, one entry.

    Attributes:
        kind: `rows`; `ids` (ids of all bags in a row, where bags start is in `bag`); `bag` (start
            of each row's bag, [N] or [N+1]); `none` (the input is the same for every request).
        bag: for `ids`: the name of the input that holds the starts.
    """

    kind: AxisKind
    bag: str | None = None

    def __post_init__(self) -> None:
        if (self.kind == "ids") != (self.bag is not None):
            raise InvalidInput(
                f"axis: {self.kind} {'needs' if self.kind == 'ids' else 'takes no'} bag"
            )


@dataclass(frozen=True, slots=True)
class RowAxes:
    """Resolved row axes.

    Attributes:
        kinds: input name -> what its axis 0 counts.
        unclear: why the custom does not settle it, in words with the remedy; "" where it does.
    """

    kinds: Mapping[str, InputAxis]
    unclear: str = ""


def resolve_row_axes(
    signature: Signature, declared: Mapping[str, InputAxis] | None = None
) -> RowAxes:
    """Return what axis 0 of every input counts.

    Args:
        signature: of the model.
        declared: `inputs` of model.yaml; wins over the custom.

    Raises:
        InvalidInput: `declared` names an input that the model does not have, or contradicts its
            shape.
    """
    declared = declared or {}
    names = {spec.name for spec in signature.inputs}
    for name, axis in declared.items():
        if name not in names:
            raise InvalidInput(f"inputs: {name!r} is no input of the model; it has {sorted(names)}")
        if axis.bag is not None and axis.bag not in names:
            raise InvalidInput(f"inputs: {name!r} names {axis.bag!r} as its bag, which is no input")
    kinds: dict[str, InputAxis] = {}
    symbols: dict[str, str | None] = {}
    for spec in signature.inputs:
        if spec.name in declared:
            kinds[spec.name] = declared[spec.name]
            if declared[spec.name].kind != "none" and spec.shape[:1] != (-1,):
                raise InvalidInput(
                    f"inputs: axis 0 of {spec.name!r} cannot count {declared[spec.name].kind}: "
                    f"the model fixes its shape to {list(spec.shape)}"
                )
        elif spec.shape and spec.shape[0] == -1:
            kinds[spec.name] = InputAxis("rows")
            symbols[spec.name] = signature.symbols[spec.name][0]
        else:
            kinds[spec.name] = InputAxis("none")
    return RowAxes(kinds, _disagreement(symbols))


def _disagreement(symbols: Mapping[str, str | None]) -> str:
    """Say which inputs' axis 0 have another symbol than most; "" where all agree.

    An axis without a name is taken at its word: exporters that name nothing mean the batch.
    """
    named = Counter(symbol for symbol in symbols.values() if symbol is not None)
    if len(named) <= 1:
        return ""
    usual = named.most_common(1)[0][0]
    name, symbol = next((n, s) for n, s in symbols.items() if s not in (None, usual))
    return (
        f"axis 0 of input {name!r} is {symbol!r} but {usual!r} in other inputs, so it may not "
        f"count rows; say what it counts in model.yaml, for example "
        f"inputs: {{{name}: {{axis: rows}}}} (or none, bag, or ids with its bag)"
    )
