"""Why deltas are not applied, in words that other processes know."""

import errno

import pytest

from anabranch_model_store.deltas.faults import DeltaConflict, DeltaCorrupt, fault_of, gap
from anabranch_model_store.memory import OutOfRoom
from anabranch_wire.errors import (
    AnabranchError,
    Cancelled,
    Conflict,
    Corrupt,
    Internal,
    InvalidInput,
    Mismatch,
    NotFound,
    TooLarge,
    Unavailable,
    Unproven,
    Unsupported,
)


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (DeltaConflict("wrong_base", "x"), Conflict, "wrong_base"),
        (DeltaCorrupt("non_finite", "x"), Corrupt, "non_finite"),
        (Mismatch("x"), Mismatch, "parity"),
        (Corrupt("x"), Corrupt, "checksum"),
        (Unproven("x"), Unproven, "checksum"),
        (InvalidInput("x"), InvalidInput, "invalid"),
        (Unsupported("x"), Unsupported, "invalid"),
        (NotFound("x"), NotFound, "invalid"),
        (TooLarge("x"), TooLarge, "too_large"),
        (OutOfRoom("x", 5), TooLarge, "too_large"),
        (Unavailable("x"), Unavailable, "unreachable"),
        (Conflict("x"), Conflict, "shape"),
        (Cancelled("x"), Internal, "internal"),
    ],
)
def test_every_error_has_its_word(
    error: AnabranchError, kind: type[AnabranchError], reason: str
) -> None:
    fault = fault_of(17, error)
    assert (fault.sequence, fault.reason, type(fault.error)) == (17, reason, kind)
    assert fault.error.message == "delta 17: x"


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EACCES, "unreachable")],
)
def test_a_full_disk_is_told_from_other_troubles_of_the_cache(number: int, reason: str) -> None:
    fault = fault_of(3, OSError(number, "no room"))
    assert (fault.reason, type(fault.error)) == (reason, Unavailable)
    assert fault.error.message == "delta 3: cache folder: no room"


def said_in_other_words(error: OSError) -> None:
    try:
        raise error
    except OSError:
        raise Unavailable("cache folder: no room") from None


def test_a_full_disk_is_one_in_other_words_too() -> None:
    with pytest.raises(Unavailable) as told:
        said_in_other_words(OSError(errno.ENOSPC, "no room"))

    fault = fault_of(3, told.value)

    assert (fault.reason, type(fault.error)) == ("disk_full", Unavailable)


def test_a_gap_says_what_to_publish() -> None:
    fault = gap(9, 8)
    assert (fault.sequence, fault.reason, type(fault.error)) == (9, "gap", Conflict)
    assert "delta 9 is missing" in fault.error.message
    assert "replaces_from 9" in fault.error.message
