"""Side information of sequences: what an item table has for each item id that a user sends."""

from msgspec import UNSET, UnsetType

from anabranch_model_store.model_yaml.features import Feature, Scalar, is_of_type
from anabranch_model_store.model_yaml.values import Name
from anabranch_wire.documents import Document

__all__ = ["ItemSequence", "check_sequence"]


class ItemSequence(Document, frozen=True, kw_only=True):
    """What fills a sequence of the user that was left out: a value for each id of another one.

    Attributes:
        ids: the user's feature that holds ids of items.
        column: of the item table, with one value an item.
        missing: raw value where the table lacks an id, or has null; without it that is a fault.
    """

    ids: Name
    column: Name
    missing: Scalar | UnsetType = UNSET


def check_sequence(place: str, sequence: ItemSequence, filled: Feature, ids: Feature) -> None:
    """Check that a sequence and that of its ids always have as many values.

    Args:
        place: of `sequence`, for messages.
        sequence: what fills the feature.
        filled: the feature.
        ids: the feature that holds ids.

    Raises:
        ValueError: they may differ, or ids cannot be found by, or values not be filled.
    """
    if filled.ragged is None or ids.ragged is None:
        name = (ids if ids.ragged is None else filled).name
        raise ValueError(f"{place}: feature {name!r} is not ragged, so no sequence")
    if ids.type == "float32":
        raise ValueError(f"{place}.ids: {ids.name!r} is float32; ids are int64 or string")
    if filled.weights:
        raise ValueError(f"{place}: {filled.name!r} has weights, which no item table fills")
    for what in ("max_length", "keep"):
        found, expected = getattr(filled.ragged, what), getattr(ids.ragged, what)
        if found != expected:
            raise ValueError(
                f"{place}: {what} of {filled.name!r} is {found}, that of {ids.name!r} is "
                f"{expected}; expected the same, so that both are cut alike"
            )
    if _default_length(filled) != _default_length(ids):
        raise ValueError(
            f"{place}: default of {filled.name!r} has not as many values as that of {ids.name!r}; "
            "both stand in where the user sends neither"
        )
    if sequence.missing is not UNSET and not is_of_type(sequence.missing, filled.type):
        raise ValueError(f"{place}.missing: expected a value of type {filled.type}")


def _default_length(feature: Feature) -> int | None:
    return len(feature.default) if isinstance(feature.default, tuple) else None
