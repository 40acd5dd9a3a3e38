"""Generated requests against `/openapi.json`: the data port with its hot routes, and admin."""

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any, TypeAlias

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from anabranch_server.app import create_admin_app, create_app
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.doors import door_context
from anabranch_testing.graphs import scale_model
from anabranch_testing.http_doors import http_door
from anabranch_testing.lengths import length
from anabranch_testing.ranked_models import ranked_model, ranked_plan

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]

EXAMPLES = length(5, 100)

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BaseSchema]:
    folder = tmp_path_factory.mktemp("models")
    models = {
        "scale": scale_model(folder / "scale"),
        "ranked": ranked_model(folder / "ranked"),
    }
    with (
        door_context(models, rankings={"ranked": ranked_plan()}) as context,
        http_door(context, app=create_app(context)) as door,
    ):
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{door.port}/openapi.json")


@pytest.fixture(scope="module")
def admin() -> Iterator[BaseSchema]:
    administration = MemoryAdministration({"scale": model_view("scale", 42)}, {"http_port": 8000})
    app = create_admin_app(administration, "0.1.0")
    with door_context({}) as context, http_door(context, app=app) as door:
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{door.port}/openapi.json")


def operations_of(schema: BaseSchema) -> list[Operation]:
    return [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]


def check(operation: Operation, mode: GenerationMode, model: str | None) -> None:
    """Send generated requests; 500 is a fault, and answers must be what the document says.

    A fixed model name lets requests come past the catalog.
    """
    path = {"model": model} if model and "{model}" in operation.path else None

    @given(case=operation.as_strategy(mode, path_parameters=path))
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    )
    def ask(case: "Case[Any]") -> None:
        response = case.call(timeout=20)
        assert response.status_code != 500, response.text
        if response.status_code >= 400:
            assert set(response.json()) == {"error"}
        # Unfit here: 503 is an answer, a schema cannot know the tensors of a model, and the last
        # check does not count 413 as a refusal.
        case.validate_response(
            response,
            excluded_checks=[
                not_a_server_error,
                positive_data_acceptance,
                *([negative_data_rejection] if response.status_code == 413 else []),
            ],
        )

    # Where nothing can be wrong, there is nothing to send.
    with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
        ask()


@pytest.mark.parametrize("model", [None, "scale", "ranked"])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_data_port(data: BaseSchema, mode: GenerationMode, model: str | None) -> None:
    operations = operations_of(data)

    assert {"POST /v2/models/{model}/infer", "GET /v2"} <= {it.label for it in operations}
    for operation in operations:
        check(operation, mode, model)


@pytest.mark.parametrize("model", [None, "scale"])
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_admin_port(admin: BaseSchema, mode: GenerationMode, model: str | None) -> None:
    operations = operations_of(admin)

    assert {"POST /admin/v1/models/{model}/rollback", "PUT /admin/v1/log"} <= {
        it.label for it in operations
    }
    for operation in operations:
        check(operation, mode, model)
