import errno

import pytest

from anabranch_server.load_failures import failure_reason
from anabranch_server.processes.failures import error_of
from anabranch_wire.errors import (
    AnabranchError,
    Corrupt,
    InvalidInput,
    Mismatch,
    Unavailable,
    Unproven,
)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Mismatch, "parity"),
        (InvalidInput, "invalid"),
        (Corrupt, "checksum"),
        (Unproven, "checksum"),
    ],
)
def test_the_reason_survives_the_way_between_processes(
    kind: type[AnabranchError], reason: str
) -> None:
    found = error_of(kind.__name__, "golden/0000.json: ...")
    assert (type(found), failure_reason(found)) == (kind, reason)


def written_to(error: OSError) -> None:
    try:
        raise error
    except OSError as refused:
        raise Unavailable(f"state_dir: cannot be written: {refused.strerror}") from None


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "disk_full"), (errno.EDQUOT, "disk_full"), (errno.EROFS, "unreachable")],
)
def test_a_disk_that_is_full_is_told_from_one_that_cannot_be_written(
    number: int, reason: str
) -> None:
    with pytest.raises(Unavailable) as told:
        written_to(OSError(number, "no"))
    assert failure_reason(told.value) == reason
