import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anabranch_client import Client, ModelMetadata
from anabranch_wire.errors import (
    DeadlineExceeded,
    Internal,
    InvalidInput,
    NotFound,
    Unavailable,
)
from anabranch_wire.tensors import TensorSpec

HEADER_LENGTH = "Inference-Header-Content-Length"
BYTES = b"\1\0\0\0a\0\0\0\0"
BF16 = np.array([1.5, -2], ml_dtypes.bfloat16).tobytes()


@dataclass
class Seen:
    """What the server below was sent, and what it is to answer."""

    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    status: int = 200
    answer: bytes = b"{}"
    answer_headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    close_after: bool = False


class Server(ThreadingHTTPServer):
    daemon_threads = True
    seen: Seen


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.seen().connections += 1

    def seen(self) -> Seen:
        assert isinstance(self.server, Server)
        return self.server.seen

    def do_GET(self) -> None:
        seen = self.seen()
        seen.paths.append(f"{self.command} {self.path}")
        seen.headers.append({name.lower(): value for name, value in self.headers.items()})
        seen.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        threading.Event().wait(seen.delay_s)
        self.send_response(seen.status)
        self.send_header("Content-Length", str(len(seen.answer)))
        for name, value in seen.answer_headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(seen.answer)
        self.close_connection = seen.close_after  # without having said so

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as server:
        server.seen = Seen()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def seen(server: Server) -> Seen:
    return server.seen


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{server.server_port}", timeout_s=20) as client:
        yield client


def answer_with(seen: Seen, header: object, data: bytes = b"") -> None:
    encoded = json.dumps(header).encode()
    seen.answer = encoded + data
    seen.answer_headers = {HEADER_LENGTH: str(len(encoded))}


def output(name: str, datatype: str, shape: list[int], size: int) -> dict[str, object]:
    return {
        "name": name,
        "datatype": datatype,
        "shape": shape,
        "parameters": {"binary_data_size": size},
    }


GOOD = {
    "model_name": "ctr",
    "model_version": "42",
    "parameters": {"delta": 17, "sequence_id": 0},
    "outputs": [
        output("ctr", "FP32", [2, 1], 8),
        output("tag", "BYTES", [2], 9),
        output("vector", "BF16", [2], 4),
    ],
}


def test_scores_come_back_as_arrays_with_their_snapshot(client: Client, seen: Seen) -> None:
    answer_with(seen, GOOD, np.array([0.25, 0.5], "<f4").tobytes() + BYTES + BF16)

    scores = client.score("ctr", {"x": np.zeros((2, 3), np.float32)})

    assert (scores.model, scores.version, scores.delta) == ("ctr", "42", 17)
    assert list(scores.outputs) == ["ctr", "tag", "vector"]
    np.testing.assert_array_equal(scores.outputs["ctr"], np.array([[0.25], [0.5]], np.float32))
    assert scores.outputs["tag"].tolist() == [b"a", b""]
    np.testing.assert_array_equal(scores.outputs["vector"], np.array([1.5, -2], np.float32))


def test_the_request_is_the_binary_form_of_the_protocol(client: Client, seen: Seen) -> None:
    answer_with(seen, {**GOOD, "outputs": []})

    client.score(
        "ctr",
        {
            "ids": np.array([[1, 2]], ">i8"),
            "flag": np.array(True),
            "text": np.array(["é"]),
            "half": np.array([1.5, -2], ml_dtypes.bfloat16),
        },
        outputs=["ctr"],
        version="canary",
        timeout_s=1.2341,
    )

    assert seen.paths == ["POST /v2/models/ctr/versions/canary/infer"]
    assert seen.headers[0]["content-type"] == "application/octet-stream"
    assert seen.headers[0]["anabranch-timeout-ms"] == "1235"
    length = int(seen.headers[0][HEADER_LENGTH.lower()])
    sizes = {"ids": 16, "flag": 1, "text": 6, "half": 4}
    declared = json.loads(seen.bodies[0][:length])
    assert declared["parameters"] == {"binary_data_output": True}
    assert declared["outputs"] == [{"name": "ctr"}]
    assert declared["inputs"] == [
        output("ids", "INT64", [1, 2], sizes["ids"]),
        output("flag", "BOOL", [], sizes["flag"]),
        output("text", "BYTES", [1], sizes["text"]),
        output("half", "BF16", [2], sizes["half"]),
    ]
    assert seen.bodies[0][length:] == (
        np.array([1, 2], "<i8").tobytes() + b"\1" + b"\2\0\0\0\xc3\xa9" + BF16
    )


def test_without_a_limit_or_outputs_none_are_sent(client: Client, seen: Seen) -> None:
    answer_with(seen, {"model_name": "m", "outputs": []})

    scores = client.score("m", {})

    assert (scores.version, scores.delta, scores.outputs) == ("", 0, {})
    assert "anabranch-timeout-ms" not in seen.headers[0]
    assert b"outputs" not in seen.bodies[0]


def test_an_array_without_a_datatype_is_refused_before_anything_is_sent(
    client: Client, seen: Seen
) -> None:
    with pytest.raises(InvalidInput, match="input 'x': no Open Inference Protocol datatype"):
        client.score("m", {"x": np.zeros(1, np.complex64)})
    assert seen.paths == []


@pytest.mark.parametrize(
    ("outputs", "data", "message"),
    [
        ([output("y", "FP32", [1], 4)], b"123", "output 'y': its bytes are missing"),
        ([output("y", "FP32", [1], -1)], b"", "output 'y': its bytes are missing"),
        ([{"name": "y", "datatype": "FP32", "shape": [1]}], b"", "its bytes are missing"),
        ([output("y", "FP32", [2], 4)], b"1234", "output 'y': expected 8 bytes"),
        ([output("y", "FP33", [1], 4)], b"1234", "not that of an infer call"),
        ("none", b"", "not that of an infer call"),
    ],
)
def test_an_answer_of_another_form_is_the_servers_fault(
    client: Client, seen: Seen, outputs: object, data: bytes, message: str
) -> None:
    answer_with(seen, {"model_name": "m", "outputs": outputs}, data)
    with pytest.raises(Internal, match=message):
        client.score("m", {})


@pytest.mark.parametrize("length", ["-1", "x", "²", "9" * 9])
def test_a_strange_header_length_is_the_servers_fault(
    client: Client, seen: Seen, length: str
) -> None:
    seen.answer_headers = {HEADER_LENGTH: length.encode().decode("latin-1")}
    with pytest.raises(Internal, match="answer"):
        client.score("m", {})


def test_metadata(client: Client, seen: Seen) -> None:
    seen.answer = json.dumps(
        {
            "name": "ctr",
            "versions": ["41", "42"],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
            "properties": {},
        }
    ).encode()

    found = client.metadata("ctr", version="42")

    assert seen.paths == ["GET /v2/models/ctr/versions/42"]
    assert found == ModelMetadata(
        name="ctr",
        versions=("41", "42"),
        platform="onnxruntime_onnx",
        inputs=(TensorSpec("x", "FP32", (-1, 3)),),
        outputs=(TensorSpec("y", "BYTES", (-1,)),),
    )


def test_metadata_of_another_form_is_the_servers_fault(client: Client) -> None:
    with pytest.raises(Internal, match="not a model's metadata"):
        client.metadata("ctr")


def test_names_cannot_leave_their_place_in_the_path(client: Client, seen: Seen) -> None:
    answer_with(seen, GOOD | {"outputs": []})
    client.score("a/../b?c", {}, version="x/y")
    assert seen.paths == ["POST /v2/models/a%2F..%2Fb%3Fc/versions/x%2Fy/infer"]


@pytest.mark.parametrize(("status", "ready"), [(200, True), (503, False), (400, False)])
def test_ready(client: Client, seen: Seen, status: int, ready: bool) -> None:
    seen.status = status
    assert client.ready() is ready
    assert seen.paths == ["GET /v2/health/ready"]


def test_ready_elsewhere_is_an_error(client: Client, seen: Seen) -> None:
    seen.status, seen.answer = 404, b"<html>nothing here</html>"
    with pytest.raises(NotFound, match="HTTP 404: <html>nothing here</html>"):
        client.ready()


def test_a_url_may_have_a_prefix(server: Server, seen: Seen) -> None:
    with Client(f"http://127.0.0.1:{server.server_port}/behind/proxy/") as client:
        client.ready()
    assert seen.paths == ["GET /behind/proxy/v2/health/ready"]


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "https://h", "http://", "http://h:x", "http://h:99999", "http://h?q",
     "http://u:p@h", "http://[::1", "http://h#f"],
)  # fmt: skip
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="url "):
        Client(url)


def test_errors_come_back_as_the_kind_that_was_raised(client: Client, seen: Seen) -> None:
    seen.status, seen.answer = 404, b'{"error": "no model ctr"}'
    with pytest.raises(NotFound, match="no model ctr"):
        client.score("ctr", {})
    with pytest.raises(NotFound, match="no model ctr"):
        client.metadata("ctr")


def test_one_connection_is_kept_alive(client: Client, seen: Seen) -> None:
    for status in (200, 503, 200):
        seen.status = status
        client.ready()
    assert (len(seen.paths), seen.connections) == (3, 1)


def test_a_connection_that_was_closed_while_idle_is_replaced(client: Client, seen: Seen) -> None:
    seen.close_after = True
    for _ in range(3):
        assert client.ready()
    assert (len(seen.paths), seen.connections) == (3, 3)


def test_a_client_can_be_used_again_after_close(client: Client, seen: Seen) -> None:
    client.ready()
    client.close()
    assert client.ready()
    assert seen.connections == 2


def test_a_late_answer_is_a_deadline_exceeded_and_never_taken_for_the_next(
    client: Client, seen: Seen
) -> None:
    seen.delay_s = 0.5
    with pytest.raises(DeadlineExceeded, match=r"no answer within 0\.05 s"):
        client.score("m", {}, timeout_s=0.05)

    seen.delay_s = 0.0
    answer_with(seen, {**GOOD, "outputs": []})
    assert client.score("m", {}).version == "42"


def test_no_time_left_is_a_deadline_exceeded(client: Client, seen: Seen) -> None:
    with pytest.raises(DeadlineExceeded):
        client.score("m", {}, timeout_s=0)
    assert seen.paths == []


def test_an_unreachable_server_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Unavailable, match="refused"):
        client.ready()


@pytest.mark.parametrize(("version", "path"), [(7, "/versions/7"), ("7", "/versions/7"), ("", "")])
def test_a_version_may_be_a_number(
    client: Client, seen: Seen, version: str | int, path: str
) -> None:
    answer_with(seen, {**GOOD, "outputs": []})

    client.score("emb", {"x": np.zeros(1)}, version=version)

    assert seen.paths == [f"POST /v2/models/emb{path}/infer"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"inputs": {"ids": [[1, 2]]}}, "input 'ids': expected a NumPy array, got list; its dtype"),
        ({"inputs": {"ids": 1.5}}, "input 'ids': expected a NumPy array, got float"),
        ({"inputs": np.zeros(3)}, "inputs: expected a mapping of names to arrays, got ndarray"),
        ({"inputs": {1: np.zeros(3)}}, "inputs: expected names, got 1"),
        ({"outputs": "score"}, "outputs: expected a list of names, as in ['score']"),
        ({"model": 5}, "model: expected a name, got int"),
        ({"version": 1.0}, "version: expected a number or label, got float"),
        ({"version": None}, "version: expected a number or label, got NoneType"),
        ({"version": True}, "version: expected a number or label, got bool"),
        ({"timeout_s": float("inf")}, "timeout_s: expected a number of seconds or None, got inf"),
        ({"timeout_s": float("nan")}, "timeout_s: expected a number of seconds or None, got nan"),
    ],
)
def test_arguments_of_another_type_are_refused_before_anything_is_sent(
    client: Client, seen: Seen, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        client.score(**{"model": "emb", "inputs": {"ids": np.zeros(3)}, **arguments})

    assert said in caught.value.message
    assert seen.connections == 0


def test_a_path_in_the_url_is_named_where_nothing_was_found(server: Server, seen: Seen) -> None:
    seen.status, seen.answer = 404, b'{"error": "no such route: GET /v2/v2/models/ctr"}'
    with (
        Client(f"http://127.0.0.1:{server.server_port}/v2/") as client,
        pytest.raises(NotFound, match=r"no such route: .* \(below '/v2', the path of the client's"),
    ):
        client.metadata("ctr")
