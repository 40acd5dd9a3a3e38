"""Triton's clients against the admin ports."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from anabranch_testing.admin_ports import AdminPorts, admin_ports
from anabranch_testing.administrations import MemoryAdministration, model_view
from anabranch_testing.triton_clients import retire_http_client


@pytest.fixture
def administration() -> MemoryAdministration:
    return MemoryAdministration({"ctr": model_view("ctr", 42), "home": model_view("home")})


@pytest.fixture
def ports(administration: MemoryAdministration) -> Iterator[AdminPorts]:
    with admin_ports(administration) as ports:
        yield ports


@pytest.fixture
def http(ports: AdminPorts) -> Iterator[Any]:
    client = triton_http.InferenceServerClient(ports.http)
    yield client
    retire_http_client(client)


@pytest.fixture
def rpc(ports: AdminPorts) -> Iterator[Any]:
    with triton_grpc.InferenceServerClient(ports.grpc) as client:
        yield client


@pytest.fixture(params=["http", "rpc"])
def client(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def settings_of(answer: Any) -> dict[str, Any]:
    """Log settings as plain values, whichever client read them."""
    if isinstance(answer, dict):
        return answer
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in answer.settings.items()
    }


def refusal(ask: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(InferenceServerException) as caught:
        ask()
    return str(caught.value.status()), str(caught.value.message())


def test_probes(administration: MemoryAdministration, client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    administration.unready = "the server is starting"
    assert not client.is_server_ready()


def test_models_are_loaded_and_unloaded(administration: MemoryAdministration, client: Any) -> None:
    client.load_model("home")
    client.unload_model("ctr", unload_dependents=True)

    assert [(action, model) for action, model, _ in administration.asked] == [
        ("load", "home"),
        ("unload", "ctr"),
    ]
    assert [view.state for view in administration.models()] == ["UNAVAILABLE", "READY"]


def test_the_index(http: Any, rpc: Any) -> None:
    shown = http.get_model_repository_index()
    told = rpc.get_model_repository_index().models

    assert shown == [
        {"name": "ctr", "version": "42", "state": "READY", "reason": ""},
        {"name": "home", "version": "", "state": "UNAVAILABLE", "reason": "no version is loaded"},
    ]
    fields = ("name", "version", "state", "reason")
    assert [{name: getattr(each, name) for name in fields} for each in told] == shown


def test_what_went_wrong_reaches_the_client(
    administration: MemoryAdministration, client: Any
) -> None:
    for ask, code, status in (
        (lambda: client.load_model("nope"), "NOT_FOUND", "404"),
        (lambda: client.unload_model("nope"), "NOT_FOUND", "404"),
        (lambda: client.load_model("ctr", config="{}"), "UNIMPLEMENTED", "501"),
        (
            lambda: client.load_model("ctr", config="{}", files={"file:1/model.onnx": b"x"}),
            "UNIMPLEMENTED",
            "501",
        ),
    ):
        assert refusal(ask)[0] in (status, f"StatusCode.{code}")
    assert not administration.asked
    administration.broken = "version 43: checksum of model.onnx"
    status, text = refusal(lambda: client.load_model("ctr"))
    assert status in ("503", "StatusCode.UNAVAILABLE")
    assert "version 43: checksum of model.onnx" in text


def test_log_settings_are_read_and_changed(
    administration: MemoryAdministration, client: Any
) -> None:
    assert settings_of(client.get_log_settings()) == {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "ISO8601",
        "access": False,
    }

    louder = settings_of(client.update_log_settings({"log_verbose_level": 1, "access": True}))
    assert (louder["log_verbose_level"], louder["access"]) == (1, True)
    assert administration.log(None, None).level == "debug"
    client.update_log_settings({"log_verbose_level": 0, "log_info": False})
    assert administration.log(None, None).level == "warning"
    client.update_log_settings({"log_warning": None, "log_format": "ISO8601"})
    assert administration.log(None, None).level == "warning"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"log_error": False}, "log_error"),
        ({"log_warning": False}, "log_info, log_warning"),
        ({"log_loud": True}, "log_loud"),
        ({"log_file": "/tmp/log"}, "standard output"),
        ({"log_format": "default"}, "standard output"),
    ],
)
def test_log_settings_that_cannot_be_are_refused(
    administration: MemoryAdministration, client: Any, settings: dict[str, Any], said: str
) -> None:
    assert said in refusal(lambda: client.update_log_settings(settings))[1]
    assert administration.logged.level == "info"


def test_trace_settings(http: Any, rpc: Any) -> None:
    assert http.get_trace_settings() == {"trace_level": ["OFF"]}
    assert http.get_trace_settings("ctr") == {"trace_level": ["OFF"]}
    assert http.update_trace_settings(settings={"trace_level": "OFF", "trace_rate": None})
    assert list(rpc.get_trace_settings().settings["trace_level"].value) == ["OFF"]
    for ask in (
        lambda: http.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        lambda: rpc.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}),
        lambda: http.update_trace_settings(model_name="ctr", settings={"trace_rate": "1"}),
    ):
        assert "POST /admin/v1/trace" in refusal(ask)[1]
    assert refusal(lambda: http.get_trace_settings("nope"))[0] == "404"
