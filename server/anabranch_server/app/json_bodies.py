"""JSON bodies of routes that take small documents: read strictly, described from the same type."""

from typing import Final, TypeVar

import msgspec
from fastapi import Request

from anabranch_server.app.openapi import JsonObject
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["describe_body", "read_body"]

_MAX_BYTES: Final = 65_536
_REFERENCE: Final = "#/components/schemas/{name}"

_Body = TypeVar("_Body")


async def read_body(request: Request, form: type[_Body]) -> _Body:
    """Return the body of a request; an empty one is `{}`.

    Args:
        request: asks.
        form: what the body is to be.

    Raises:
        InvalidInput: it is something else; says what and where.
        TooLarge: it has more than 64 KiB.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BYTES:
            raise TooLarge(f"body: at most {_MAX_BYTES} bytes are allowed")
    try:
        return msgspec.json.decode(body or b"{}", type=form)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"request JSON: {error}") from None


def describe_body(form: type, example: JsonObject | None = None) -> JsonObject:
    """Return the `openapi_extra` of a route that reads `form`.

    Args:
        form: a struct whose docstring says what its fields are, or a mapping.
        example: such a body.
    """
    (schema,), components = msgspec.json.schema_components([form], ref_template=_REFERENCE)
    for name, component in components.items():
        if schema == {"$ref": _REFERENCE.format(name=name)}:
            schema = component
    content: JsonObject = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"requestBody": {"required": False, "content": {"application/json": content}}}
