"""Golden files of a version, read and ready to be run as if a caller had sent them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from anabranch_model_store.containment import read_inside
from anabranch_model_store.golden.recording import MOST_FILES
from anabranch_model_store.version_files import VersionFiles
from anabranch_runtime.ranking.requests import RankRequest
from anabranch_wire.errors import InvalidInput, NotFound, TooLarge
from anabranch_wire.golden import FOLDER, GoldenRequest, decode

__all__ = ["GoldenCase", "golden_files", "read_cases"]

_FILE_BYTES: Final = 16 << 20
_BYTES: Final = 64 << 20
"""Of golden requests of one version: bytes of one file, bytes of all."""


@dataclass(frozen=True, slots=True, eq=False)
class GoldenCase:
    """One file.

    Attributes:
        name: relative to the version folder.
        request: every candidate is answered, with the heads that there are scores of.
        golden: all of the file.
    """

    name: str
    request: RankRequest
    golden: GoldenRequest


class _Ranking(msgspec.Struct):
    """Columns as they stand in the file, to the byte."""

    user: dict[str, msgspec.Raw] = {}
    candidates: dict[str, msgspec.Raw] = {}


class _Golden(msgspec.Struct):
    request: _Ranking


def golden_files(files: VersionFiles) -> tuple[str, ...]:
    """Return the names of a version's golden files, in order."""
    return files.below(FOLDER, ".json")


def read_cases(files: VersionFiles, names: Sequence[str] | None = None) -> tuple[GoldenCase, ...]:
    """Read the golden requests of a version, or of a delta.

    Args:
        files: of it.
        names: which of them are golden requests; None for all that lie where a version has them.

    Raises:
        InvalidInput: a file is malformed; the message names file and field.
        NotFound: there is no such file.
        TooLarge: there are too many, or too large ones.
        Unavailable: one cannot be read.
    """
    names = golden_files(files) if names is None else names
    missing = [name for name in names if name not in files]
    if missing:
        raise NotFound(f"golden request {missing[0]}: no such file is listed")
    if len(names) > MOST_FILES:
        raise TooLarge(f"{FOLDER}: {len(names)} files; expected at most {MOST_FILES}")
    if sum(files.bytes[name] for name in names) > _BYTES:
        raise TooLarge(f"{FOLDER}: more than {_BYTES} bytes in all")
    return tuple(_case(read_inside(files.folder, name, _FILE_BYTES), name) for name in names)


def _case(data: bytes, name: str) -> GoldenCase:
    golden = decode(data, name)
    _check_rows(golden, name)
    sent = msgspec.json.decode(data, type=_Golden).request
    request = RankRequest(
        form="json",
        user=_columns(sent.user),
        candidates=_columns(sent.candidates),
        outputs=tuple(golden.scores),
    )
    return GoldenCase(name, request, golden)


def _columns(raw: Mapping[str, msgspec.Raw]) -> dict[str, bytes]:
    return {name: bytes(column) for name, column in raw.items()}


def _check_rows(golden: GoldenRequest, name: str) -> None:
    """Check that there is a candidate, and as many scores and keys as there are rows.

    Raises:
        InvalidInput: there is not.
    """
    counts = {column: len(rows) for column, rows in golden.request.candidates.items()}
    if len(set(counts.values())) > 1:
        raise InvalidInput(f"{name}: request.candidates: columns differ in length: {counts}")
    rows = next(iter(counts.values()), 0)
    if not rows:
        raise InvalidInput(f"{name}: request.candidates: expected at least one candidate")
    for head, scores in golden.scores.items():
        if len(scores) != rows:
            raise InvalidInput(
                f"{name}: scores[{head!r}]: {len(scores)} scores for {rows} candidates"
            )
    for feature, keys in golden.keys.items():
        expected = 1 if feature in golden.request.user else rows
        is_sent = feature in golden.request.user or feature in golden.request.candidates
        if is_sent and len(keys) != expected:  # whose the others are is known to model.yaml
            raise InvalidInput(f"{name}: keys[{feature!r}]: {len(keys)} rows; expected {expected}")
