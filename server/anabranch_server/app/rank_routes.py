"""The rank routes as `/openapi.json` describes them; the hot path answers them, not FastAPI."""

from collections.abc import Mapping
from typing import Final

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan, VocabularyPlan
from anabranch_server.app.infer_routes import (
    CALL_HEADERS,
    MODEL_PARAMETER,
    SCORING_ERRORS,
    SNAPSHOT_HEADERS,
)
from anabranch_server.app.openapi import JsonObject, error_responses

__all__ = ["RANK_SCHEMAS", "rank_paths"]

_EXAMPLES: Final = 8
_EXAMPLE_VALUES: Final = 2000
_CANDIDATES: Final = 2

_VALUE: Final[JsonObject] = {
    "description": (
        "An integer or decimal string (int64), a number (float32) or a string; an array of them "
        "for vectors and ragged features; {ids, weights} where values have weights; null: the "
        "default."
    ),
}
_NUMBERS: Final[JsonObject] = {"type": "array", "items": {"type": "number", "format": "float"}}
_COUNT: Final[JsonObject] = {"type": "integer", "minimum": 0}
_IDS: Final[JsonObject] = {
    "type": "array",
    "items": {"oneOf": [{"type": "integer", "format": "int64"}, {"type": "string"}]},
}


def _object(
    description: str, properties: Mapping[str, JsonObject], required: tuple[str, ...] = ()
) -> JsonObject:
    schema: JsonObject = {
        "type": "object",
        "description": description,
        "properties": dict(properties),
        "additionalProperties": False,
    }
    if required:
        schema["required"] = list(required)
    return schema


def _map_of(values: JsonObject, description: str) -> JsonObject:
    return {"type": "object", "description": description, "additionalProperties": values}


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


RANK_SCHEMAS: Final[Mapping[str, JsonObject]] = {
    "RankRequest": _object(
        "One user and N candidates. Which features there are, model.yaml says.",
        {
            "id": {"type": "string", "description": "Returned as it came."},
            "user": _map_of(_VALUE, "Feature -> its value."),
            "candidates": _map_of(
                {"type": "array", "items": _VALUE},
                "Feature -> a value for each candidate; all of one length. The ids alone where an "
                "item table has the rest.",
            ),
            "top_k": {
                "type": "integer",
                "minimum": 0,
                "maximum": 2**32 - 1,
                "description": "Best candidates to answer; 0 = all.",
            },
            "outputs": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Heads to answer beside the score.",
            },
            "explain": {"type": "boolean", "description": "Say where the numbers come from."},
            "parameters": _ref("RankParameters"),
        },
        ("candidates",),
    ),
    "RankParameters": _object(
        "Options of a ranking request.",
        {
            "timeout": {
                "type": "integer",
                "minimum": 0,
                "description": "Microseconds after which the answer is worthless; 0 = none.",
            },
            "priority": {
                "type": "integer",
                "minimum": 0,
                "maximum": 2**32 - 1,
                "description": "0 = the default level, 1 = the highest.",
            },
            "routing_key": {
                "oneOf": [{"type": "string"}, {"type": "integer"}],
                "description": "Requests of one key meet the same executor where the model says "
                "so; without one the feature that `ranking.routing_key` names counts.",
            },
        },
    ),
    "RankResponse": _object(
        "Candidates in their order, best first. Non-finite numbers are the bare tokens NaN, "
        "Infinity and -Infinity.",
        {
            "model_name": {"type": "string"},
            "model_version": {"type": "string", "description": "The version that computed it."},
            "delta": {**_COUNT, "description": "Newest applied delta; 0 = none."},
            "id": {"type": "string", "description": "As in the request; absent if it had none."},
            "ids": {**_IDS, "description": "Of the candidates, in the JSON type that was sent."},
            "scores": _NUMBERS,
            "positions": {
                "type": "array",
                "items": _COUNT,
                "description": "Of the candidates as sent.",
            },
            "outputs": _map_of({"type": "array", "items": {}}, "Head -> its number or vector."),
            "bad_candidates": {
                "type": "array",
                "items": _object(
                    "A candidate that could not be scored.",
                    {"position": _COUNT, "error": {"type": "string"}},
                    ("position", "error"),
                ),
                "description": "Where model.yaml has `on_bad_candidate: report`.",
            },
            "explain": _ref("RankExplanation"),
        },
        ("model_name", "model_version", "delta", "ids", "scores", "positions"),
    ),
    "RankExplanation": _object(
        "Where the numbers come from.",
        {
            "snapshot": _object(
                "How fresh the version is; null where it does not say.",
                {
                    "step": {"type": "integer", "format": "int64", "nullable": True},
                    "event_time": {
                        "type": "number",
                        "nullable": True,
                        "description": "Newest event that it learnt of, seconds since 1970.",
                    },
                    "age_s": {"type": "number", "nullable": True},
                },
            ),
            "missed": _map_of(
                _object(
                    "Keys without a row.",
                    {
                        "keys": _COUNT,
                        "user": {"type": "boolean"},
                        "candidates": {"type": "array", "items": _COUNT},
                    },
                    ("keys",),
                ),
                "Feature -> keys that no table has.",
            ),
            "defaulted": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Features whose default stood in for a value.",
            },
            "stages_ms": _map_of({"type": "number"}, "decode, queue, lookup, run."),
        },
        ("snapshot", "missed", "defaulted", "stages_ms"),
    ),
}
"""Components of the rank routes."""

_RANKED: Final[JsonObject] = {
    "description": "The order, with the snapshot that it was computed from.",
    "headers": SNAPSHOT_HEADERS,
    "content": {
        "application/json": {
            "schema": _ref("RankResponse"),
            "example": {
                "model_name": "ctr",
                "model_version": "42",
                "delta": 17,
                "id": "req-7",
                "ids": [13, 11],
                "scores": [0.0712, 0.0334],
                "positions": [2, 0],
                "outputs": {"ctr": [0.0712, 0.0334]},
            },
        },
    },
}

_FEW: Final[JsonObject] = {
    "summary": "One user, three candidates",
    "value": {
        "user": {"user_id": 9001, "country": "de"},
        "candidates": {"item_id": [11, 12, 13], "price": [9.9, 12.0, 3.5]},
        "top_k": 2,
    },
}
"""The example where no model is loaded that ranks."""


def rank_paths(catalog: Catalog) -> dict[str, JsonObject]:
    """Return the paths, with a ready-made request for each of the first models that rank.

    Args:
        catalog: gives the examples.
    """
    examples = _examples(catalog) or {"few": _FEW}
    route = "/v1/models/{model}"
    return {
        f"{route}:rank": _path("rank", "Rank with the version that serves now", examples),
        f"{route}/versions/{{version}}:rank": _path(
            "rank_version",
            "Rank with one version",
            examples,
            _segment("version", {"type": "integer", "format": "int64", "minimum": 1}),
        ),
        f"{route}/labels/{{label}}:rank": _path(
            "rank_label",
            "Rank with the version that a label names",
            examples,
            _segment("label", {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,62}$"}),
        ),
    }


def _segment(name: str, schema: JsonObject) -> JsonObject:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _path(
    operation: str, summary: str, examples: JsonObject, *parameters: JsonObject
) -> JsonObject:
    responses: dict[int | str, JsonObject] = {200: _RANKED, **error_responses(*SCORING_ERRORS)}
    return {
        "post": {
            "tags": ["Ranking"],
            "operationId": operation,
            "summary": summary,
            "parameters": [MODEL_PARAMETER, *parameters, *CALL_HEADERS],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": _ref("RankRequest"), "examples": examples}
                },
            },
            "responses": {str(status): response for status, response in responses.items()},
        }
    }


def _examples(catalog: Catalog) -> JsonObject:
    examples: JsonObject = {}
    for name, state in sorted(catalog.states.items()):
        served = None if state.default is None else state.versions[state.default]
        if served is None or served.ranking is None or len(examples) == _EXAMPLES:
            continue
        request = _example(served.ranking.plan)
        if request is not None:
            summary = f"A user and {_CANDIDATES} candidates for {name}"
            examples[name] = {"summary": summary, "value": request}
    return examples


def _example(plan: RankingPlan) -> JsonObject | None:
    """A request with a value for every feature; None where it would be too long."""
    user: JsonObject = {}
    candidates: JsonObject = {}
    values = 0
    for feature in plan.features:
        count = 1
        for size in feature.shape:
            count *= size
        values += count
        if values > _EXAMPLE_VALUES:
            return None
        if feature.side == "user":
            user[feature.name] = _example_row(feature, 0, count)
        else:
            rows = [_example_row(feature, row, count) for row in range(_CANDIDATES)]
            candidates[feature.name] = rows
    return {"user": user, "candidates": candidates, "top_k": _CANDIDATES}


def _example_row(feature: FeaturePlan, row: int, count: int) -> object:
    """The row of a feature: its first values in a vocabulary, else what its type has."""
    value: object
    transform = feature.transform
    if isinstance(transform, VocabularyPlan) and transform.values:
        value = transform.values[row % len(transform.values)]
    elif feature.type == "string":
        value = f"{feature.name}-{row + 1}"
    elif feature.type == "float32":
        value = 0.5
    else:
        value = row + 1
    if feature.ragged is not None:
        return {"ids": [value], "weights": [1.0]} if feature.weighted else [value]
    if feature.shape:
        return [value] * count
    return value
