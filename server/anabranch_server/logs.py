"""Log lines: one JSON object a line for machines, one readable line for people.

Every line has `ts`, `level`, `logger`, `event`, `msg`, `worker` and `pid`; what a caller passes in
`extra=` follows. Folder names are taken out of everything that is written, tracebacks name modules
instead of files.
"""

import logging
import re
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from anabranch_server.config import LogConfig, LogLevel

__all__ = ["JsonFormatter", "TextFormatter", "configure_logs", "set_log_level"]

_STANDARD: Final = frozenset(
    vars(logging.LogRecord("", 0, "", 0, "", None, None)).keys()
    | {"message", "asctime", "taskName", "event", "color_message"}
)
"""Attributes of a record that are not fields of our lines."""

_PATH: Final = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?/(?:[^\s:,;'\"()/]+/)+(?=[^\s:,;'\"()/])")
"""The folders before a file name; addresses such as http://host/a/b are left alone."""

_FOREIGN: Final = ("onnx_ir", "onnxscript", "uvicorn", "grpc", "asyncio", "concurrent")
"""Libraries whose chatter is only of interest when it warns."""

_MAX_TEXT: Final = 2000
_MAX_FRAMES: Final = 20


class JsonFormatter(logging.Formatter):
    """One JSON object a line.

    Args:
        worker: index of the worker, or the name of the process's part.
    """

    def __init__(self, worker: int | str) -> None:
        super().__init__()
        self._worker = worker
        self._encode = msgspec.json.Encoder(enc_hook=str, decimal_format="string").encode

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        line = {
            "ts": _timestamp(record.created),
            "level": logging.getLevelName(min(record.levelno, logging.ERROR)).lower(),
            "logger": record.name,
            "event": getattr(record, "event", "message"),
            "msg": _clean(record.getMessage()),
            "worker": self._worker,
            "pid": record.process,
        }
        line |= _fields(record)
        return self._encode(line).decode()


class TextFormatter(logging.Formatter):
    """One line for people: time, level, process, message, fields as `name=value`.

    Args:
        worker: index of the worker, or the name of the process's part.
    """

    def __init__(self, worker: int | str) -> None:
        super().__init__()
        self._process = f"worker {worker}" if isinstance(worker, int) else worker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without its end."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        parts = [f"{clock}.{record.msecs:03.0f}", f"{record.levelname:<7}", f"{self._process:<10}"]
        parts.append(_clean(record.getMessage()))
        parts += [f"{name}={_flat(value)}" for name, value in _fields(record).items()]
        return " ".join(parts)


def configure_logs(config: LogConfig, worker: int | str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream`, standard output by default.

    Args:
        config: format and level.
        worker: index of the worker, or the name of the process's part.
        stream: where to write.
    """
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter((TextFormatter if config.format == "text" else JsonFormatter)(worker))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    logging.captureWarnings(True)
    set_log_level(config.level)


def set_log_level(level: LogLevel) -> None:
    """Write lines of `level` and above; foreign libraries only above info unless it is debug."""
    logging.getLogger().setLevel(level.upper())
    quiet = logging.DEBUG if level == "debug" else logging.WARNING
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(max(quiet, logging.getLogger().level))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        name: _clean(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD and not name.startswith("_")
    }
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields["error"] = _clean(f"{type(error).__name__}: {error}")
        fields["stack"] = list(_frames(error))
    return fields


def _frames(error: BaseException) -> Iterator[str]:
    """Yield `module:line function` of the innermost calls."""
    for frame, line in list(traceback.walk_tb(error.__traceback__))[-_MAX_FRAMES:]:
        module = frame.f_globals.get("__name__", "?")
        yield f"{module}:{line} {frame.f_code.co_name}"


def _clean(text: str) -> str:
    if len(text) > _MAX_TEXT:
        text = f"{text[:_MAX_TEXT]}..."
    return _PATH.sub("", text) if "/" in text else text


def _flat(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return repr(text) if isinstance(value, str) and (" " in text or "\n" in text) else text


def _timestamp(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
