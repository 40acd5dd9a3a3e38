import io
import json
import logging
import os
import warnings
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from anabranch_server.config import LogConfig
from anabranch_server.logs import configure_logs, set_log_level

logger = logging.getLogger("anabranch_server.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    foreign = {name: logging.getLogger(name).level for name in ("uvicorn", "grpc", "asyncio")}
    yield io.StringIO()
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, old in foreign.items():
        logging.getLogger(name).setLevel(old)


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_line_is_one_json_object_with_the_fixed_fields(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 3, stream)

    logger.info("model %s\nis loaded", "ctr", extra={"event": "model_loaded", "seconds": 0.5})

    (line,) = lines(stream)
    assert list(line)[:7] == ["ts", "level", "logger", "event", "msg", "worker", "pid"]
    assert line["level"] == "info"
    assert line["logger"] == "anabranch_server.test"
    assert line["event"] == "model_loaded"
    assert line["msg"] == "model ctr\nis loaded"
    assert line["worker"] == 3
    assert line["pid"] == os.getpid()
    assert line["seconds"] == 0.5
    stamp = str(line["ts"])
    assert stamp.endswith("Z")
    assert len(stamp) == len("2026-01-01T00:00:00.000Z")
    assert datetime.fromisoformat(stamp).tzinfo is not None


def test_lines_without_an_event_are_messages(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), "supervisor", stream)
    logger.warning("careful")
    assert lines(stream)[0]["event"] == "message"
    assert lines(stream)[0]["worker"] == "supervisor"


def test_folders_never_reach_the_log(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 0, stream)

    logger.info("read /srv/secret/models/ctr/model.onnx", extra={"file": "/srv/secret/x.json"})
    try:
        Path("/srv/secret/missing.yaml").read_text()
    except OSError:
        logger.exception("failed", extra={"event": "internal_error"})

    assert "secret" not in stream.getvalue()
    first, second = lines(stream)
    assert first["msg"] == "read model.onnx"
    assert first["file"] == "x.json"
    assert str(second["error"]).startswith("FileNotFoundError: ")
    assert "test_folders_never_reach_the_log" in str(second["stack"])


def test_addresses_are_left_as_they_are(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 0, stream)
    logger.info("docs at http://127.0.0.1:8000/docs/x, half 1/2")
    assert lines(stream)[0]["msg"] == "docs at http://127.0.0.1:8000/docs/x, half 1/2"


def test_huge_texts_are_cut_and_odd_values_survive(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 0, stream)
    logger.info("x" * 100_000, extra={"value": object(), "number": float("nan")})
    (line,) = lines(stream)
    assert len(str(line["msg"])) < 2100
    assert "object" in str(line["value"])
    assert line["number"] is None


@pytest.mark.parametrize(
    ("worker", "named"), [(0, "worker 0"), (12, "worker 12"), ("launcher", "launcher")]
)
def test_text_is_for_people(stream: io.StringIO, worker: int | str, named: str) -> None:
    configure_logs(LogConfig(format="text"), worker, stream)
    logger.info("ready", extra={"event": "ready", "http": "127.0.0.1:1", "why": "two words"})
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.split("ready")[0].split("INFO")[1].strip() == named
    assert line.rstrip().endswith("ready http=127.0.0.1:1 why='two words'")


def test_what_libraries_call_critical_is_an_error(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 0, stream)

    logging.getLogger("library").critical("on fire")

    assert json.loads(stream.getvalue())["level"] == "error"


def test_the_level_holds_and_libraries_stay_quiet(stream: io.StringIO) -> None:
    configure_logs(LogConfig(level="info"), 0, stream)
    logger.debug("no")
    logging.getLogger("uvicorn.error").info("no")
    logging.getLogger("uvicorn.error").warning("yes")
    set_log_level("error")
    logger.warning("no")
    logging.getLogger("uvicorn.error").warning("no")
    set_log_level("debug")
    logger.debug("yes")
    logging.getLogger("uvicorn.error").debug("yes")
    assert [line["msg"] for line in lines(stream)] == ["yes"] * 3


def test_warnings_become_lines(stream: io.StringIO) -> None:
    configure_logs(LogConfig(), 0, stream)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)
    assert "old thing" in stream.getvalue()
