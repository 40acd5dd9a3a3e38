"""Models: what is served and kept, and labels."""

from dataclasses import dataclass

import msgspec
from fastapi import FastAPI, Request

from anabranch_server.administration import Administration
from anabranch_server.app.json_bodies import describe_body, read_body
from anabranch_server.app.openapi import error_responses
from anabranch_server.audit import Changes
from anabranch_server.describe import ModelView
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge, Unsupported
from anabranch_wire.names import check_label, parse_version

__all__ = ["add_models"]


@dataclass(frozen=True, slots=True)
class Models:
    """Every model.

    Attributes:
        models: by name.
    """

    models: list[ModelView]


def add_models(app: FastAPI, administration: Administration, changes: Changes) -> None:
    """Add the routes."""

    @app.get("/admin/v1/models", tags=["Models"], summary="Every model", operation_id="models")
    async def models() -> Models:
        return Models(administration.models())

    @app.get(
        "/admin/v1/models/{model}",
        tags=["Models"],
        summary="One model",
        operation_id="model",
        responses=error_responses(NotFound),
    )
    async def one_model(model: str) -> ModelView:
        return administration.model(model)

    @app.put(
        "/admin/v1/models/{model}/labels",
        tags=["Models"],
        summary="Set and remove labels",
        description="Merges labels into those set before; null removes one. They are kept over "
        "restarts and win over serving.yaml until they are removed.",
        operation_id="set_labels",
        openapi_extra=describe_body(dict[str, int | None], {"canary": 43, "old": None}),
        responses=error_responses(InvalidInput, NotFound, TooLarge),
    )
    async def labels(request: Request, model: str) -> ModelView:
        wanted = await read_body(request, dict[str, int | None])
        for label, version in wanted.items():
            check_label(label)
            if version is not None:
                parse_version(str(version))
        return await changes.set_labels(model, wanted)

    _add_what_is_to_come(app)


def _add_what_is_to_come(app: FastAPI) -> None:
    """Answer calls that a later release has in other words than `no such route`."""

    async def traffic(request: Request) -> None:
        await read_body(request, msgspec.Raw)
        raise Unsupported("splitting traffic by call is not supported yet: use labels")

    app.add_api_route(
        "/admin/v1/models/{model}/traffic", traffic, methods=["PUT"], include_in_schema=False
    )
