"""Whether the names in model.yaml are those of the graph that it speaks of."""

import difflib
from collections.abc import Collection, Iterator
from typing import Final

from anabranch_graph_opt.row_axes import InputAxis
from anabranch_graph_opt.signature import Signature
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_wire.errors import InvalidInput

__all__ = ["check_names", "declared_axes", "idle_features"]

_SHOWN: Final = 20


def check_names(meaning: ModelMeaning, signature: Signature) -> None:
    """Check that every input and output that model.yaml names is one of the graph.

    Raises:
        InvalidInput: one is not; the message names the place and what was probably meant.
    """
    inputs = [spec.name for spec in signature.inputs]
    outputs = [spec.name for spec in signature.outputs]
    filled = {lookup.feature for lookup in meaning.lookups}
    for place, name in _named_inputs(meaning, filled, inputs):
        _check(place, name, "input", inputs)
    for name in meaning.outputs:
        _check("outputs", name, "output", outputs)
    for name in meaning.calibration:
        _check("calibration", name, "output", outputs)
    if meaning.ranking is not None:
        for name in meaning.ranking.score.heads:
            _check("ranking.score", name, "output", outputs)


def declared_axes(meaning: ModelMeaning) -> dict[str, InputAxis]:
    """Return what model.yaml says about axis 0 of inputs, by input."""
    return {
        name: InputAxis(declared.axis, declared.bag) for name, declared in meaning.inputs.items()
    }


def idle_features(meaning: ModelMeaning) -> frozenset[str]:
    """Return the features that need to feed nothing: ids to be answered, and the routing key."""
    if meaning.ranking is None:
        return frozenset()
    return frozenset(filter(None, (meaning.ranking.id, meaning.ranking.routing_key)))


def _named_inputs(
    meaning: ModelMeaning, filled: Collection[str], inputs: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield place and name of each graph input; features whose keys go to tables are none."""
    for name in meaning.inputs:
        yield "inputs", name
    if isinstance(meaning.user_inputs, tuple):
        for name in meaning.user_inputs:
            if name not in filled:
                yield "user_inputs", name
    for lookup in meaning.lookups:
        yield "lookups", lookup.output.input
    idle = idle_features(meaning)
    for index, feature in enumerate(meaning.features):
        if feature.name in idle and feature.input is None and feature.name not in inputs:
            continue
        for span in feature.length_spans if feature.name in filled else feature.spans:
            yield f"features[{index}]", span.input


def _check(place: str, name: str, kind: str, known: list[str]) -> None:
    if name in known:
        return
    close = difflib.get_close_matches(name, known, n=1)
    meant = f", did you mean {close[0]!r}?" if close else ";"
    raise InvalidInput(
        f"model.yaml: {place}: the graph has no {kind} {name!r}{meant} "
        f"it has {', '.join(map(repr, known[:_SHOWN]))}{' ...' if len(known) > _SHOWN else ''}"
    )
