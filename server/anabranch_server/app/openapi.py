"""The OpenAPI document of an app, in the dialect that the bundled Swagger UI reads (3.0).

FastAPI derives the cold routes from the values that they return; `extra` adds what FastAPI does not
answer. Docstrings are the one source of descriptions: their `Attributes` describe the properties.
"""

import copy
import re
from collections.abc import Mapping
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from anabranch_wire.errors import AnabranchError

__all__ = ["JsonObject", "describe_app", "error_responses"]

JsonObject = dict[str, object]
"""A part of the document."""

_DIALECT: Final = "3.0.3"

_ERROR: Final[JsonObject] = {
    "type": "object",
    "description": "The body of every answer that is not a success.",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What was found and expected."}},
    "additionalProperties": False,
}
_REQUEST_ID: Final[JsonObject] = {
    "description": "As sent in `X-Request-Id`, else made here.",
    "schema": {"type": "string", "maxLength": 128},
}

_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): ((?:.|\n {8,})*)", re.MULTILINE)


def error_responses(*errors: type[AnabranchError]) -> dict[int | str, JsonObject]:
    """Return the `responses` of a route that fails in these ways, and perhaps in others."""
    responses: dict[int | str, JsonObject] = {"default": _error("Any other failure.")}
    for error in errors:
        text = (error.__doc__ or "").partition("\n")[0]
        known = responses.get(error.http)
        responses[error.http] = _error(f"{known['description']} {text}" if known else text)
    return responses


def describe_app(
    app: FastAPI, *, paths: Mapping[str, JsonObject], schemas: Mapping[str, JsonObject]
) -> JsonObject:
    """Return the whole document.

    Args:
        app: its title, version, description and routes.
        paths: routes that something else than `app` answers.
        schemas: components that those refer to.
    """
    document: JsonObject = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        openapi_version=_DIALECT,
        routes=app.routes,
        tags=app.openapi_tags,
        license_info=app.license_info,
    )
    lowered = _lowered(document)
    assert isinstance(lowered, dict)
    components = lowered.setdefault("components", {})
    components.setdefault("schemas", {}).update({"Error": _ERROR, **schemas})
    components["headers"] = {"RequestId": _REQUEST_ID}
    lowered["paths"] = dict(sorted({**lowered["paths"], **copy.deepcopy(dict(paths))}.items()))
    _name_requests(lowered["paths"])
    return lowered


def _error(description: str) -> JsonObject:
    return {
        "description": description,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


def _name_requests(paths: Mapping[str, object]) -> None:
    """Say of every answer that it names its request."""
    header = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
    for path in paths.values():
        assert isinstance(path, dict)
        for operation in path.values():
            for response in operation["responses"].values():
                response["headers"] = {**response.get("headers", {}), **header}


def _lowered(node: object) -> object:
    """A copy of a part of a 3.1 document in 3.0's words."""
    if isinstance(node, list):
        return [_lowered(item) for item in node]
    if not isinstance(node, dict):
        return node
    lowered = {
        key: _lowered(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str) and "type" in node)
    }
    choices = lowered.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del lowered["anyOf"]
        lowered["nullable"] = True
        if len(rest) > 1:
            lowered["anyOf"] = rest
        elif "$ref" in rest[0]:
            lowered["allOf"] = rest
        else:
            lowered.update(rest[0])
    _spread_attributes(lowered)
    return lowered


def _spread_attributes(schema: JsonObject) -> None:
    text = schema.get("description")
    properties = schema.get("properties")
    if not isinstance(text, str) or not isinstance(properties, dict):
        return
    summary, _, attributes = text.partition("Attributes:\n")
    schema["description"] = summary.strip()
    for name, words in _ATTRIBUTE.findall(attributes):
        if isinstance(described := properties.get(name), dict) and "$ref" not in described:
            described["description"] = re.sub(r"\s+", " ", words).strip()
