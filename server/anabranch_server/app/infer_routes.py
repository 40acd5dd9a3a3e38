"""The infer routes as `/openapi.json` describes them; the hot path answers them, not FastAPI."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_runtime.catalog import Catalog
from anabranch_runtime.sent_features import LENGTHS
from anabranch_runtime.served import ServedVersion
from anabranch_server.app.openapi import JsonObject, error_responses
from anabranch_wire.errors import (
    DeadlineExceeded,
    Internal,
    InvalidInput,
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
    Unsupported,
    UnsupportedMedia,
)
from anabranch_wire.tensors import DATATYPES, TensorSpec

__all__ = [
    "CALL_HEADERS",
    "INFER_SCHEMAS",
    "MODEL_PARAMETER",
    "SCORING_ERRORS",
    "SNAPSHOT_HEADERS",
    "infer_paths",
]

_EXAMPLES: Final = 8
_EXAMPLE_ELEMENTS: Final = 2000
_LARGEST: Final = 10**18 - 1
_LONGEST_MS: Final = 10**12 - 1

_DATATYPE: Final[JsonObject] = {"type": "string", "enum": list(DATATYPES)}
_SHAPE: Final[JsonObject] = {
    "type": "array",
    "items": {"type": "integer", "format": "int64", "minimum": 0},
    "description": "Axes of the whole batch.",
}
_DATA: Final[JsonObject] = {
    "type": "array",
    "items": {},
    "description": (
        "Elements, flat in row-major order or nested as `shape` says. Numbers for numeric "
        "datatypes, booleans for BOOL, strings for BYTES; FP16 and BF16 travel as binary data only."
    ),
}


def _object(description: str, required: Sequence[str], **properties: JsonObject) -> JsonObject:
    schema: JsonObject = {
        "type": "object",
        "description": description,
        "properties": properties,
    }
    if required:
        schema["required"] = list(required)
    return schema


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _list_of(name: str, description: str) -> JsonObject:
    return {"type": "array", "items": _ref(name), "description": description}


_BINARY_SIZE: Final[JsonObject] = {
    "type": "integer",
    "format": "int64",
    "minimum": 0,
    "description": "Bytes of this tensor behind the JSON, in place of `data`.",
}

INFER_SCHEMAS: Final[Mapping[str, JsonObject]] = {
    "InferRequest": _object(
        "A scoring request. Every input of the model, each once, with the same number of rows.",
        ["inputs"],
        id={"type": "string", "description": "Returned as it came."},
        parameters=_ref("RequestParameters"),
        inputs=_list_of("InferInput", "The model's inputs, in any order."),
        outputs=_list_of("InferRequestedOutput", "Absent or empty: all, in the model's order."),
    ),
    "RequestParameters": _object(
        "Options of a request. Unknown ones are ignored.",
        [],
        timeout={
            "type": "integer",
            "minimum": 0,
            "description": "Microseconds after which the answer is worthless; 0 = none.",
        },
        priority={
            "type": "integer",
            "minimum": 0,
            "description": "0 = the default level, 1 = the highest.",
        },
        routing_key={
            "oneOf": [{"type": "string"}, {"type": "integer"}],
            "description": "Requests of one key meet the same executor where the model says so.",
        },
        binary_data_output={
            "type": "boolean",
            "description": "Answer outputs as binary data unless one says otherwise.",
        },
    ),
    "InferInput": _object(
        "One input, with `data` or with `parameters.binary_data_size`.",
        ["name", "datatype", "shape"],
        name={"type": "string"},
        datatype=_DATATYPE,
        shape=_SHAPE,
        parameters=_object("Options of the input.", [], binary_data_size=_BINARY_SIZE),
        data=_DATA,
    ),
    "InferRequestedOutput": _object(
        "One output that is wanted.",
        ["name"],
        name={"type": "string"},
        parameters=_object(
            "Options of the output.",
            [],
            binary_data={"type": "boolean", "description": "Answer it as binary data."},
        ),
    ),
    "InferResponse": _object(
        "Scores. Non-finite numbers are the bare tokens NaN, Infinity and -Infinity.",
        ["model_name", "model_version", "parameters", "outputs"],
        model_name={"type": "string"},
        model_version={"type": "string", "description": "The version that computed it."},
        id={"type": "string", "description": "As in the request; absent if it had none."},
        parameters=_object(
            "Options of the answer.",
            ["delta"],
            delta={"type": "integer", "description": "Newest applied delta; 0 = none."},
        ),
        outputs=_list_of("InferOutput", "In the order asked for."),
    ),
    "InferOutput": _object(
        "One output, with `data` or with `parameters.binary_data_size`.",
        ["name", "datatype", "shape"],
        name={"type": "string"},
        datatype=_DATATYPE,
        shape=_SHAPE,
        parameters=_object("Options of the output.", [], binary_data_size=_BINARY_SIZE),
        data=_DATA,
    ),
}
"""Components of the infer routes."""

MODEL_PARAMETER: Final[JsonObject] = {
    "name": "model",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}
"""The segment of a path that names a model."""

_VERSION: Final[JsonObject] = {
    "name": "version",
    "in": "path",
    "required": True,
    "description": "A version number or a label.",
    "schema": {"type": "string"},
}


def _header(name: str, schema: JsonObject, description: str) -> JsonObject:
    return {"name": name, "in": "header", "schema": schema, "description": description}


_JSON_BYTES: Final = _header(
    "Inference-Header-Content-Length",
    {"type": "integer", "format": "int64", "minimum": 0, "maximum": _LARGEST},
    "Length of the JSON at the front of the body, with the bytes of the tensors behind it. "
    "0: the body is one raw tensor.",
)

CALL_HEADERS: Final = [
    _header(
        "Content-Encoding", {"type": "string", "enum": ["gzip", "deflate"]}, "Of the whole body."
    ),
    _header("X-Request-Id", {"type": "string", "maxLength": 128}, "Returned with the answer."),
    _header(
        "Anabranch-Timeout-Ms",
        {"type": "number", "minimum": 0, "maximum": _LONGEST_MS},
        "The shortest of this, the `timeout` parameter and the model's own limit counts.",
    ),
    _header(
        "Anabranch-Priority",
        {"type": "integer", "format": "int64", "minimum": 0, "maximum": _LARGEST},
        "As the `priority` parameter; that one wins.",
    ),
]
"""Headers of every scoring request."""

_BINARY_BODY: Final[JsonObject] = {
    "schema": {"type": "string", "format": "binary"},
}

SNAPSHOT_HEADERS: Final[JsonObject] = {
    "Anabranch-Model-Version": {
        "description": "The version that answered.",
        "schema": {"type": "integer"},
    },
    "Anabranch-Delta": {
        "description": "Its newest applied delta.",
        "schema": {"type": "integer"},
    },
}
"""Headers of every scored answer."""

_SCORED: Final[JsonObject] = {
    "description": "Scores, with the snapshot that they were computed from.",
    "headers": {
        **SNAPSHOT_HEADERS,
        "Inference-Header-Content-Length": {
            "description": "Length of the JSON, where binary data follows it.",
            "schema": {"type": "integer"},
        },
    },
    "content": {
        "application/json": {
            "schema": _ref("InferResponse"),
            "example": {
                "model_name": "ctr",
                "model_version": "42",
                "id": "r-1",
                "parameters": {"delta": 17},
                "outputs": [
                    {"name": "score", "datatype": "FP32", "shape": [2, 1], "data": [0.0712, 0.0334]}
                ],
            },
        },
        "application/octet-stream": _BINARY_BODY,
    },
}

_TWO_ROWS: Final[JsonObject] = {
    "summary": "Two rows of two features",
    "value": {
        "id": "r-1",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [1.0, 2.0, 3.0, 4.0]}
        ],
    },
}
"""The example where no model is loaded."""

SCORING_ERRORS: Final = (
    InvalidInput,
    NotFound,
    TooLarge,
    UnsupportedMedia,
    Internal,
    Unsupported,
    Overloaded,
    Unavailable,
    DeadlineExceeded,
)
"""How scoring requests fail."""


def infer_paths(catalog: Catalog) -> dict[str, JsonObject]:
    """Return the paths, with one ready-made request for each of the first models that are loaded.

    Args:
        catalog: gives the examples.
    """
    examples = _examples(catalog)
    route = "/v2/models/{model}"
    return {
        f"{route}/infer": _path("infer", "Score with the version that serves now", examples),
        f"{route}/versions/{{version}}/infer": _path(
            "infer_version", "Score with one version", examples, _VERSION
        ),
    }


def _path(
    operation: str, summary: str, examples: JsonObject, *parameters: JsonObject
) -> JsonObject:
    responses: dict[int | str, JsonObject] = {200: _SCORED, **error_responses(*SCORING_ERRORS)}
    json_body: JsonObject = {
        "schema": _ref("InferRequest"),
        "examples": examples or {"two_rows": _TWO_ROWS},
    }
    return {
        "post": {
            "tags": ["Scoring"],
            "operationId": operation,
            "summary": summary,
            "parameters": [MODEL_PARAMETER, *parameters, _JSON_BYTES, *CALL_HEADERS],
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": json_body,
                    "application/octet-stream": _BINARY_BODY,
                },
            },
            "responses": {str(status): response for status, response in responses.items()},
        }
    }


def _examples(catalog: Catalog) -> JsonObject:
    examples: JsonObject = {}
    for name, state in sorted(catalog.states.items())[:_EXAMPLES]:
        if state.default is None:
            continue
        request = _example(state.versions[state.default])
        if request is not None:
            examples[name] = {"summary": f"One row of zeros for {name}", "value": request}
    return examples


def _example(served: ServedVersion) -> JsonObject | None:
    """One row of zeros; None where JSON would be too long or cannot carry a datatype."""
    inputs: list[JsonObject] = []
    elements = 0
    for spec in served.inputs:
        shape = [1 if size < 0 else size for size in spec.shape]
        count = 1
        for size in shape:
            count *= size
        elements += count
        if elements > _EXAMPLE_ELEMENTS or spec.datatype in ("FP16", "BF16"):
            return None
        inputs.append(
            {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": shape,
                "data": _zeros(spec) * count,
            }
        )
    return {"inputs": [*inputs, *_example_lengths(served)]}


def _example_lengths(served: ServedVersion) -> list[JsonObject]:
    """That the row has one id of each feature whose rows differ in their number."""
    lookups = served.model.lookups
    return [
        {"name": feature.name + LENGTHS, "datatype": "INT64", "shape": [1], "data": [1]}
        for feature in (() if lookups is None else lookups.features)
        if feature.ragged
    ]


def _zeros(spec: TensorSpec) -> list[object]:
    if spec.datatype == "BOOL":
        return [False]
    if spec.datatype == "BYTES":
        return [""]
    return [0.0] if spec.datatype.startswith("FP") else [0]
