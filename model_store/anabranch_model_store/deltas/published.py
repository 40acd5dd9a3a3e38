"""The deltas of one version as they are published: headers read once, files when needed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from anabranch_model_store.deltas.chains import Chain, shortest_chain
from anabranch_model_store.deltas.delta_files import DeltaFiles, read_files
from anabranch_model_store.deltas.delta_folders import DeltaNumbers, check_base, read_delta
from anabranch_model_store.deltas.faults import Fault, fault_of
from anabranch_model_store.deltas.origins import Origin
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_wire.delta import Delta
from anabranch_wire.errors import AnabranchError

__all__ = ["Published", "Stopped", "last_items"]


class Stopped(Exception):
    """A delta is at fault that was counted on.

    Attributes:
        fault: why.
        is_final: whether others would fail in the same way.
    """

    def __init__(self, fault: Fault, *, is_final: bool = False) -> None:
        super().__init__(fault.error.message)
        self.fault = fault
        self.is_final = is_final


@dataclass(slots=True, eq=False)
class Published:
    """Reads the deltas of a version. Belongs to one thread.

    Attributes:
        target: the version.
        origin: brings files onto this machine.
        faults: what was found wrong, by number of the delta; those are as good as not there.
    """

    target: DeltaTarget
    origin: Origin
    faults: dict[int, Fault] = field(default_factory=dict)
    _headers: dict[int, Delta | None] = field(default_factory=dict)
    _read_last: DeltaFiles | None = None
    _numbers: DeltaNumbers = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = DeltaNumbers(self.target.folder)

    def chain(self, applied: int, upto: int) -> Chain:
        """Return the fewest deltas that lead from one to another, or as far as can be.

        Raises:
            Unavailable: they cannot be listed.
        """
        return shortest_chain(applied, upto, self.replaces_from, numbers=self._numbers.between)

    def replaces_from(self, sequence: int) -> int | None:
        """Return what a delta replaces everything from; None where it cannot be used."""
        delta = self.header(sequence)
        return None if delta is None else delta.replaces_from

    def header(self, sequence: int) -> Delta | None:
        """Return a delta; None where it is not published, or is at fault."""
        if sequence in self.faults:
            return None
        if sequence not in self._headers:
            self._headers[sequence] = self._read(sequence)
        return self._headers[sequence]

    def peek(self, sequence: int) -> Delta | None:
        """Return a delta; None where it is not published, or is at fault.

        No fault is noted: whoever asks has no need of it.
        """
        if sequence in self._headers or sequence in self.faults:
            return self.header(sequence)
        delta = self.header(sequence)
        if self.faults.pop(sequence, None) is not None:
            del self._headers[sequence]
        return delta

    def files(self, delta: Delta, names: Collection[str] | None = None) -> DeltaFiles:
        """Return files of a delta, read and found right.

        Args:
            delta: as `header` returned it.
            names: paths of the files that are needed; None for all of them.

        Raises:
            AnabranchError: as `read_files`, or they cannot be had.
        """
        last = self._read_last
        if last is not None and last.delta is delta and last.data.keys() >= set(names or ()):
            return last
        files = read_files(self.origin.attempt(self.target.folder, delta), delta, names)
        self._read_last = files if names is None else None
        return files

    def _read(self, sequence: int) -> Delta | None:
        try:
            delta = read_delta(self.target.folder, sequence)
            if delta is not None:
                check_base(delta, self.target.snapshot, self.target.identity)
        except AnabranchError as error:
            self.faults[sequence] = fault_of(sequence, error)
            return None
        return delta


def last_items(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the deltas with item tables, as far as later ones do not bring all of them again.

    Args:
        deltas: one after the other.
    """
    names: set[str] = set()
    found: list[Delta] = []
    for delta in reversed(deltas):
        own = {one.name for one in delta.item_tables}
        if own - names:
            found.append(delta)
            names |= own
    return found[::-1]
