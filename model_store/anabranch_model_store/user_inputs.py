"""Inputs that hold one user for all rows of a request: `user_inputs` of model.yaml."""

from collections.abc import Sequence
from dataclasses import replace

from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.signature import Signature
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.npz_files import MAX_BYTES
from anabranch_model_store.warmup_files import Sample
from anabranch_runtime.admission import InputRules
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["repeat_users", "user_inputs"]


def user_inputs(meaning: ModelMeaning, axes: RowAxes) -> tuple[str, ...]:
    """Return the graph inputs that hold a user; none where that is to be found out.

    Args:
        meaning: model.yaml; its names are those of the graph, or of features that are looked up.
        axes: what axis 0 of every input counts.

    Raises:
        InvalidInput: axis 0 of one does not count rows, so that it cannot hold a user for each.
    """
    if isinstance(meaning.user_inputs, str):
        return ()
    features = {lookup.feature for lookup in meaning.lookups}
    named = tuple(name for name in meaning.user_inputs if name not in features)
    if named and axes.unclear:
        raise InvalidInput(f"model.yaml: user_inputs: {axes.unclear}")
    for name in named:
        if axes.kinds[name].kind != "rows":
            raise InvalidInput(
                f"model.yaml: user_inputs: axis 0 of input {name!r} does not count rows, so it "
                "cannot hold a user for each of them; leave it out"
            )
    return named


def repeat_users(
    samples: Sequence[Sample], users: tuple[str, ...], signature: Signature, axes: RowAxes
) -> tuple[Sample, ...]:
    """Return requests with the users that they hold once repeated for every row.

    Raises:
        InvalidInput: inputs of one disagree on the number of rows.
        TooLarge: the users of one, repeated, would be too much.
    """
    if not users:
        return tuple(samples)
    row_axes = tuple(
        0 if axes.kinds[spec.name].kind == "rows" else None for spec in signature.inputs
    )
    rules = InputRules(signature.inputs, row_axes, users, MAX_BYTES)
    repeated: list[Sample] = []
    for sample in samples:
        try:
            ordered, _ = rules.order(sample.inputs)
        except (InvalidInput, TooLarge) as error:
            raise type(error)(f"{sample.name}: {error.message}") from None
        names = [spec.name for spec in signature.inputs]
        repeated.append(replace(sample, inputs=dict(zip(names, ordered, strict=True))))
    return tuple(repeated)
