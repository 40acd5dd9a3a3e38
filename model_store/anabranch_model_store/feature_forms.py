"""How callers send the features that lookups read: ids per row, weights, one user for all rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch_model_store.model_yaml import Feature, Lookup, ModelMeaning
from anabranch_wire.errors import InvalidInput

__all__ = ["BagForm", "feature_forms", "key_names"]

_MAX_LENGTH: Final = 1 << 20
"""Ids of a row where nothing else bounds them; what a lookup plan takes."""


@dataclass(frozen=True, slots=True)
class BagForm:
    """One feature.

    Attributes:
        name: as callers send its keys.
        max_length: ids of a row: exactly, or at most where it is ragged.
        columns_length: ids of a row that a sequence (combiner none) has columns for; 0 where no
            lookup makes one.
        ragged: whether rows differ in their number of ids.
        weighted: whether an id may have a weight.
        is_user: whether one row may stand for all rows of a request.
    """

    name: str
    max_length: int
    columns_length: int
    ragged: bool
    weighted: bool
    is_user: bool


def feature_forms(meaning: ModelMeaning, dims: Mapping[str, int]) -> dict[str, BagForm]:
    """Return the form of every feature that lookups read, in the order they first name it.

    A feature of several hashes has one for the keys of each table, see `key_names`. A feature that
    model.yaml does not list under `features` is a bag of any length where a lookup pools it, and
    else has as many ids as its columns have room for.

    Args:
        meaning: model.yaml.
        dims: name of a table as lookups have it -> numbers per row.

    Raises:
        InvalidInput: lookups need different forms of a feature, or its type has no keys.
    """
    listed = {feature.name: feature for feature in meaning.features}
    users = meaning.user_inputs if isinstance(meaning.user_inputs, tuple) else ()
    readers: dict[str, list[Lookup]] = {}
    for name, lookup in zip(key_names(meaning), meaning.lookups, strict=True):
        readers.setdefault(name, []).append(lookup)
    forms: dict[str, BagForm] = {}
    for name, lookups in readers.items():
        feature = listed.get(lookups[0].feature)
        length = _columns_length(name, lookups, dims)
        if feature is None:
            pooled = any(lookup.combiner != "none" for lookup in lookups)
            forms[name] = BagForm(name, length or _MAX_LENGTH, length, pooled, False, name in users)
        else:
            _check_keys(feature)
            forms[name] = _listed_form(name, feature, length, is_user=feature.side == "user")
    return forms


def key_names(meaning: ModelMeaning) -> tuple[str, ...]:
    """Return for each lookup the name of the input by which callers send its keys.

    That is its feature's; where that makes several keys of a value, `feature.table`.
    """
    several = {feature.name for feature in meaning.features if feature.multi_hash is not None}
    return tuple(
        f"{lookup.feature}.{lookup.table}" if lookup.feature in several else lookup.feature
        for lookup in meaning.lookups
    )


def _listed_form(name: str, feature: Feature, length: int, *, is_user: bool) -> BagForm:
    ragged = feature.ragged
    if ragged is None:
        return BagForm(name, 1, length and 1, False, False, is_user)
    expected = ragged.pad_to or ragged.max_length
    if length and length != expected:
        raise InvalidInput(
            f"model.yaml: lookups: feature {feature.name!r} has columns for {length} ids; "
            f"expected {expected}, as its ragged: says"
        )
    return BagForm(name, ragged.max_length, length, True, feature.weights, is_user)


def _check_keys(feature: Feature) -> None:
    """Check that callers can send the keys of a feature."""
    if feature.type == "float32" and feature.bucketize is None:
        raise InvalidInput(
            f"model.yaml: lookups: feature {feature.name!r} is float32; keys are int64"
        )


def _columns_length(name: str, lookups: list[Lookup], dims: Mapping[str, int]) -> int:
    """Return how many ids the columns of a feature's sequences have room for; 0: there is none."""
    found = {
        lookup.table: (end - begin) // dims[lookup.table]
        for lookup in lookups
        if lookup.combiner == "none"
        for begin, end in (lookup.output.columns,)
    }
    lengths = set(found.values())
    if len(lengths) > 1:
        raise InvalidInput(
            f"model.yaml: lookups: feature {name!r} has columns for different numbers of ids: "
            f"{', '.join(f'{length} of {table!r}' for table, length in found.items())}"
        )
    return max(1, *lengths) if lengths else 0
