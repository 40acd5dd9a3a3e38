"""Ranking of model.yaml, compiled: what callers send fills the graph, its heads make a score.

What cannot be carried out is refused here, before the version is tried, in words of model.yaml.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import UNSET

from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.feature_forms import key_names
from anabranch_model_store.graph_names import idle_features
from anabranch_model_store.model_yaml import Feature, ModelMeaning, Ranking
from anabranch_model_store.model_yaml.features import Scalar
from anabranch_model_store.ranking_sinks import FeatureSinks, fill_inputs, makes_ids
from anabranch_model_store.score_plans import ScorePlan, calibrations, score_plan
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.vocabulary_files import Values, vocabulary_plan, vocabulary_values
from anabranch_runtime.ranking.id_ranges import check_ids
from anabranch_runtime.ranking.plans import (
    BucketizePlan,
    FeaturePlan,
    HashPlan,
    MultiHashPlan,
    RaggedPlan,
    RankingPlan,
    VocabularyPlan,
)
from anabranch_runtime.ranking.rules import RankingRules
from anabranch_wire.errors import InvalidInput
from anabranch_wire.tensors import TensorSpec

if TYPE_CHECKING:
    from anabranch_model_store.version_contents import VersionContents

__all__ = ["check_rules", "ranking_plan"]

_PLACE: Final = "model.yaml: ranking"
_INT64: Final = (-(2**63), 2**63 - 1)
_MOST_FLOAT32: Final = float(np.finfo(np.float32).max)

_Transform = HashPlan | VocabularyPlan | BucketizePlan | MultiHashPlan | None


def ranking_plan(
    meaning: ModelMeaning,
    contents: "VersionContents",
    files: VersionFiles,
    cache: BuiltGraphs | None,
) -> RankingPlan | None:
    """Return what the ranking doors of a version do; None where model.yaml has no ranking.

    Features fill the inputs of the graph as published: that its lookups may be cut out of it makes
    no difference. Item tables are not part of it yet.

    Args:
        meaning: model.yaml, whose names are those of the graph.
        contents: of the version's files.
        files: of the version.
        cache: where long vocabularies are kept; None has all of them inside the plan.

    Raises:
        InvalidInput: features do not fill the graph, heads are no scores, or a vocabulary is
            malformed.
        NotFound, TooLarge, Conflict, Unavailable: the file of a vocabulary cannot be read, or the
            cache not be written.
    """
    ranking = meaning.ranking
    if ranking is None:
        return None
    outputs = contents.signature.outputs
    score: ScorePlan = score_plan(ranking.score, outputs)
    calibration = calibrations(meaning, outputs)
    keys = _keys(meaning)
    _check_features(meaning, ranking, keys)
    lookups = contents.lookups
    inputs = contents.signature.inputs
    if lookups is not None:
        inputs = tuple(inputs[index] for index in lookups.dense)
    filled = fill_inputs(
        meaning.features,
        inputs,
        contents.row_axes,
        contents.user_inputs,
        keys,
        idle_features(meaning),
    )
    missing = _missing_items(meaning, ranking)
    features = tuple(
        _feature(
            feature,
            filled.sinks[feature.name],
            keys.get(feature.name, ()),
            missing.get(feature.name),
            files,
            cache,
        )
        for feature in meaning.features
    )
    if not any(one.side == "candidate" and (one.values or one.keys) for one in features):
        raise InvalidInput(
            f"{_PLACE}: no feature of candidates goes into the graph, so all of them would have "
            "the same score"
        )
    return RankingPlan(
        features=features,
        tensors=filled.tensors,
        id=ranking.id,
        heads=score.heads,
        weights=score.weights,
        formula=score.formula,
        descending=ranking.order == "descending",
        report_bad=ranking.on_bad_candidate == "report",
        routing_key=ranking.routing_key,
        calibration=calibration,
    )


def check_rules(plan: RankingPlan | None, outputs: tuple[TensorSpec, ...]) -> None:
    """Check that workers can build the ranking of a version, by building it.

    Args:
        plan: whole, with its item table; None where there is no ranking.
        outputs: of the graph.

    Raises:
        InvalidInput: they could not.
        Corrupt, Unavailable: a file of the cache is damaged or cannot be read.
    """
    if plan is None:
        return
    try:
        check_ids(plan)
        RankingRules(plan, outputs)
    except ValueError as fault:
        raise InvalidInput(f"{_PLACE}: {fault}") from None


def _keys(meaning: ModelMeaning) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the keys of every feature that lookups read, in the order it makes them.

    Raises:
        InvalidInput: model.yaml does not list one under features.
    """
    keys: dict[str, dict[str, None]] = {}
    for name, lookup in zip(key_names(meaning), meaning.lookups, strict=True):
        keys.setdefault(lookup.feature, {})[name] = None
    listed = {feature.name: feature for feature in meaning.features}
    for name in keys:
        if name not in listed:
            raise InvalidInput(
                f"{_PLACE}: lookups read feature {name!r}, which is not under features; callers of "
                "the ranking doors need to know its side and type"
            )
    return {
        name: tuple(read)
        if (several := listed[name].multi_hash) is None
        else tuple(f"{name}.{table}" for table in several.tables)
        for name, read in keys.items()
    }


def _check_features(
    meaning: ModelMeaning, ranking: Ranking, keys: Mapping[str, tuple[str, ...]]
) -> None:
    """Check what a feature is by itself, for what ranking does with it."""
    for feature in meaning.features:
        place = f"{_PLACE}: feature {feature.name!r}"
        if feature.name in keys:
            if not makes_ids(feature):
                raise InvalidInput(
                    f"{place} is {feature.type} and lookups read it; give it hash or vocabulary to "
                    "make keys"
                )
            if feature.input is not None:
                raise InvalidInput(f"{place}: lookups read it, so it has no input: in the graph")
    for what, name in (("id", ranking.id), ("routing_key", ranking.routing_key)):
        one = next((feature for feature in meaning.features if feature.name == name), None)
        if one is not None and (one.type == "float32" or one.ragged is not None):
            form = "ragged" if one.ragged is not None else one.type
            raise InvalidInput(
                f"{_PLACE}.{what}: feature {name!r} is {form}; expected one int64 or string"
            )


def _feature(
    feature: Feature,
    sinks: FeatureSinks,
    keys: tuple[str, ...],
    missing: Scalar | None,
    files: VersionFiles,
    cache: BuiltGraphs | None,
) -> FeaturePlan:
    place = f"{_PLACE}: feature {feature.name!r}"
    transform, values = _transform(feature, files, cache, f"{place}: vocabulary")
    ragged = feature.ragged
    if missing is not None:
        _check_stand_ins(feature, (missing,), values, f"{place}: missing")
    return FeaturePlan(
        name=feature.name,
        side=feature.side,
        type=feature.type,
        shape=feature.shape,
        transform=transform,
        default=_default(feature, values, place),
        ragged=None
        if ragged is None
        else RaggedPlan(ragged.max_length, ragged.keep, ragged.pad_to, float(ragged.padding or 0)),
        weighted=feature.weights,
        values=sinks.values,
        lengths=sinks.lengths,
        keys=keys,
    )


def _transform(
    feature: Feature, files: VersionFiles, cache: BuiltGraphs | None, place: str
) -> tuple[_Transform, Values | None]:
    """Return what makes keys of a feature; and the values of its vocabulary, if it has one."""
    if feature.hash is not None:
        one = feature.hash
        return HashPlan(one.function, one.num_buckets, one.seed), None
    if feature.bucketize is not None:
        return BucketizePlan(feature.bucketize.boundaries), None
    if feature.multi_hash is not None:
        several = feature.multi_hash
        return MultiHashPlan(several.num_buckets, several.functions, several.seed), None
    if feature.vocabulary is None or feature.type == "float32":
        return None, None
    values = vocabulary_values(feature.vocabulary, feature.type, files, place)
    return vocabulary_plan(feature.vocabulary, values, cache), values


def _default(
    feature: Feature, vocabulary: Values | None, place: str
) -> tuple[int | float | str, ...] | None:
    """Return the raw values that stand in for a feature; None where it has to be sent."""
    default = feature.default
    if isinstance(default, tuple):
        values: tuple[int | float | str, ...] = default
    elif isinstance(default, int | float | str):
        values = (default,)
    else:
        return None
    _check_stand_ins(feature, values, vocabulary, f"{place}: default")
    return tuple(map(float, values)) if feature.type == "float32" else values


def _check_stand_ins(
    feature: Feature, values: tuple[Scalar, ...], vocabulary: Values | None, place: str
) -> None:
    """Check that raw values of model.yaml are values of a feature, and known to it."""
    for value in values:
        if feature.type == "int64" and not _INT64[0] <= int(value) <= _INT64[1]:
            raise InvalidInput(f"{place}: {value}; expected a 64-bit integer")
        if feature.type == "float32" and abs(float(value)) > _MOST_FLOAT32:
            raise InvalidInput(f"{place}: {value} is beyond float32")
    if vocabulary is not None and feature.vocabulary and feature.vocabulary.unknown == "error":
        known = set(vocabulary)
        for value in values:
            if value not in known:
                raise InvalidInput(
                    f"{place}: {value!r} is not in its vocabulary; list it there, or set "
                    "vocabulary.unknown"
                )


def _missing_items(meaning: ModelMeaning, ranking: Ranking) -> Mapping[str, Scalar]:
    """Return what stands in for unknown items: sequence of the user -> raw value."""
    if ranking.item_table is None:
        return {}
    sequences = meaning.item_tables[ranking.item_table].sequences
    return {name: one.missing for name, one in sequences.items() if one.missing is not UNSET}
