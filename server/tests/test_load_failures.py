import pytest

from anabranch_server.load_failures import failure_reason
from anabranch_server.processes.failures import error_of
from anabranch_wire.errors import Corrupt, InvalidInput, Mismatch


@pytest.mark.parametrize(
    ("kind", "reason"), [(Mismatch, "parity"), (InvalidInput, "invalid"), (Corrupt, "checksum")]
)
def test_the_reason_survives_the_way_between_processes(
    kind: type[InvalidInput], reason: str
) -> None:
    assert failure_reason(error_of(kind.__name__, "golden/0000.json: ...")) == reason
