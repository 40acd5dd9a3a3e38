"""Where the batches of a served version read table rows: one version of one generation of a store.

A batch reads with the source of its own version, from its first lookup to its last: what a delta
or a switch changes meanwhile is another source.
"""

from dataclasses import dataclass, replace

import msgspec

from anabranch_runtime.lookups import Lookups
from anabranch_runtime.sent_features import LENGTHS
from anabranch_runtime.store import Generation, LookupPlan, compile_plan
from anabranch_wire.lookups import Lengths, Lookup
from anabranch_wire.plan import Plan

__all__ = ["RowSource", "StoreView"]


@dataclass(frozen=True, slots=True, eq=False)
class StoreView:
    """What a reader was told to read.

    Attributes:
        generation: mapped for as long as somebody has this.
        version: of the store; whoever made this keeps it readable meanwhile.
    """

    generation: Generation
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class RowSource:
    """A view of a store with the lookups of a model compiled for it.

    Attributes:
        lookups: of the model.
        view: what they read.
        plan: the lookups over the view's generation.
    """

    lookups: Lookups
    view: StoreView
    plan: LookupPlan

    @classmethod
    def of(cls, lookups: Lookups | None, view: StoreView | None) -> "RowSource | None":
        """Compile the lookups of a model, if it has any; then there must be a view."""
        if lookups is None:
            return None
        if view is None:
            raise ValueError("a model with lookups needs a store")
        return cls.open(lookups, view)

    @classmethod
    def open(cls, lookups: Lookups, view: StoreView) -> "RowSource":
        """Compile `lookups` for a view.

        Raises:
            InvalidInput: the generation has other tables than the plan.
        """
        return cls(lookups, view, compile_plan(_by_lengths(lookups.separate.plan), view.generation))

    def at(self, view: StoreView) -> "RowSource":
        """Return the same lookups for another view; cheap where its generation is the same.

        Raises:
            InvalidInput: its generation has other tables than the plan.
        """
        if view.generation is self.view.generation:
            return replace(self, view=view)
        return RowSource.open(self.lookups, view)


def _by_lengths(plan: Plan) -> Plan:
    """The plan with bags as requests have them in normal form."""
    return msgspec.structs.replace(plan, lookups=tuple(map(_with_lengths, plan.lookups)))


def _with_lengths(lookup: Lookup) -> Lookup:
    if lookup.lengths is None:
        return lookup
    return msgspec.structs.replace(lookup, lengths=Lengths(input=lookup.ids.input + LENGTHS))
