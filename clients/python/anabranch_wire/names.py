"""Names that cross a process, a file or a wire, checked by allow-list in one place.

Nothing that came from outside becomes a path, a label or a metric before it passed here.
"""

import re
from typing import Final, NewType

from anabranch_wire.errors import InvalidInput

__all__ = [
    "ModelName",
    "check_label",
    "check_model_name",
    "check_relative_path",
    "check_tensor_name",
    "is_label",
    "is_version",
    "parse_version",
]

ModelName = NewType("ModelName", str)
"""A model name that passed `check_model_name`."""

_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,17}")
_LABEL: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_TENSOR_BYTES: Final = 512
_PATH_BYTES: Final = 1024
_SHOWN: Final = 120  # characters of a foreign name that a message repeats


def check_model_name(text: str) -> ModelName:
    """Return `text` as a model name.

    Raises:
        InvalidInput: it is not 1 to 128 of letters, digits, `_`, `.`, `-` with a letter or digit
            first, or it contains `..`.
    """
    if _MODEL.fullmatch(text) is None or ".." in text:
        raise InvalidInput(
            f"model name {text[:140]!r}: expected 1 to 128 of A-Z a-z 0-9 _ . - "
            "with a letter or digit first, and no '..'"
        )
    return ModelName(text)


def is_version(text: str) -> bool:
    """Whether `text` names a version folder: digits, no leading 0, at most 18."""
    return _VERSION.fullmatch(text) is not None


def parse_version(text: str) -> int:
    """Return the version number.

    Raises:
        InvalidInput: `text` is not a version.
    """
    if not is_version(text):
        raise InvalidInput(f"version {text[:40]!r}: expected 1 to 18 digits without a leading 0")
    return int(text)


def is_label(text: str) -> bool:
    """Whether `text` has the form of a label (never mistaken for a version)."""
    return _LABEL.fullmatch(text) is not None


def check_label(text: str) -> str:
    """Return `text` as a label.

    Raises:
        InvalidInput: it is not 1 to 63 of a-z 0-9 _ - with a letter first.
    """
    if not is_label(text):
        raise InvalidInput(
            f"label {text[:80]!r}: expected 1 to 63 of a-z 0-9 _ - with a letter first"
        )
    return text


def check_tensor_name(text: str) -> str:
    """Return `text` as the name of a tensor or table, which is never used as a file name.

    Raises:
        InvalidInput: it is not 1 to 512 bytes of UTF-8.
    """
    if not text or len(_utf8(text)) > _TENSOR_BYTES:
        raise InvalidInput(f"name {text[:_SHOWN]!r}: expected 1 to {_TENSOR_BYTES} bytes")
    return text


def check_relative_path(text: str) -> str:
    """Return `text` if, as a path, it can only mean something below the folder it is used in.

    What it names may still be a symbolic link: whoever opens it has that to check.

    Raises:
        InvalidInput: it is empty, longer than 1024 bytes, absolute, has a backslash or an
            unprintable character, or one of its `/`-separated parts is empty, `.` or `..`.
    """
    shown = repr(text[:_SHOWN])
    if not text or len(_utf8(text)) > _PATH_BYTES:
        raise InvalidInput(f"path {shown}: expected 1 to {_PATH_BYTES} bytes")
    if "\\" in text or not text.isprintable():
        raise InvalidInput(f"path {shown}: expected printable characters and no backslash")
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise InvalidInput(
            f"path {shown}: expected parts joined by '/', none of them empty, '.' or '..'"
        )
    return text


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"name {text[:_SHOWN]!r}: a surrogate has no UTF-8 form") from None
