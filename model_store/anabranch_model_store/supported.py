"""What this release can keep of what model.yaml and serving.yaml promise.

A key that only opens a further door may lie unused. A key that would change answers, or promises
something about them, is refused as long as nothing carries it out: a server that ignores it would
be wrong in silence.
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.serving_yaml import Deployment
from anabranch_wire.errors import Unsupported

__all__ = [
    "check_deployment",
    "check_meaning",
    "idle_keys",
    "unused_keys",
]

_IDLE: Final = (
    "executors.devices",
    "executors.streams",
    "executors.buckets",
    "executors.cpu_fallback",
    "traffic.sticky",
    "deltas.verify",
)
"""Keys of serving.yaml that tune what this release does not do."""


def check_meaning(meaning: ModelMeaning) -> None:
    """Check that this release can do what a version means.

    Raises:
        Unsupported: it cannot; the message names the keys.
    """
    _refuse("model.yaml", _unavailable_meaning(meaning))


def check_deployment(deployment: Deployment) -> None:
    """Check that this release can run a model as its deployment says.

    Raises:
        Unsupported: it cannot; the message names the keys.
    """
    _refuse("serving.yaml", _unavailable_deployment(deployment))


def unused_keys(meaning: ModelMeaning) -> tuple[str, ...]:
    """Return the keys of model.yaml that are read and checked, but that no door uses."""
    read = {lookup.feature for lookup in meaning.lookups}
    ranking = meaning.ranking
    item_table = None if ranking is None else ranking.item_table
    keys = {
        "features": ranking is None and any(one.name not in read for one in meaning.features),
        "item_tables": any(name != item_table for name in meaning.item_tables),
        "easyrec": meaning.easyrec,
    }
    return tuple(key for key, value in keys.items() if value)


def idle_keys(deployment: Deployment) -> tuple[str, ...]:
    """Return the keys of serving.yaml that were changed, but that nothing acts on yet."""
    default = Deployment()
    return tuple(key for key in _IDLE if attrgetter(key)(deployment) != attrgetter(key)(default))


def _refuse(file: str, reasons: Iterator[str]) -> None:
    found = list(reasons)
    if found:
        raise Unsupported(f"{file}: not available in this release: {'; '.join(found)}")


def _unavailable_meaning(meaning: ModelMeaning) -> Iterator[str]:
    if meaning.calibration and meaning.ranking is None:
        yield "calibration without ranking (outputs would be uncorrected)"
    looked_up = {lookup.feature for lookup in meaning.lookups}
    for feature in meaning.features:
        is_used = meaning.ranking is not None or feature.name in looked_up
        if is_used and feature.multi_hash is not None and feature.ragged is not None:
            yield (
                f"features: {feature.name!r}: multi_hash of a ragged feature (list a feature for "
                "each table, each with a hash)"
            )
    if meaning.optimize.dense in ("f16", "bf16"):
        yield (
            f"optimize.dense: {meaning.optimize.dense} (for GPU backends; ort-cpu computes in f32, "
            "int8 or int8_dynamic)"
        )
    if "external_data_outside" in meaning.optimize.allow:
        yield "optimize.allow: external_data_outside (copy the files into the version)"
    read = {lookup.table for lookup in meaning.lookups}
    for name, table in meaning.tables.items():
        if not read.isdisjoint((name, *table.alias)):
            continue  # from a table file, which keeps all that is said of it
        place = f"tables[{name!r}]"
        if table.keys == "hashed":
            yield f"{place}.keys: hashed"
        if table.rows != "f32" and (meaning.lookups or meaning.optimize.split == "off"):
            reason = "model.yaml has lookups" if meaning.lookups else "optimize.split is off"
            yield f"{place}.rows: {table.rows} (the table stays in the graph: {reason})"
        if table.missing_policy not in (None, "original"):
            yield f"{place}.missing: {table.missing_policy}"
        if table.padding_key is not None:
            yield f"{place}.padding_key"


def _unavailable_deployment(deployment: Deployment) -> Iterator[str]:
    executors = deployment.executors
    if executors.backend != "ort-cpu":
        yield f"executors.backend: {executors.backend}"
    if any(deployment.traffic.split.values()):
        yield "traffic.split"
    if deployment.shadow is not None and deployment.shadow.percent > 0:
        yield "shadow"
