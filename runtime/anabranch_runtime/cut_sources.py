"""Where the batches of a cut model read table rows; see `row_source`."""

from dataclasses import dataclass, replace

from anabranch_runtime.cut_models import CutModel
from anabranch_runtime.row_source import StoreView
from anabranch_runtime.store import LookupPlan, compile_plan

__all__ = ["CutSource"]


@dataclass(frozen=True, slots=True, eq=False)
class CutSource:
    """A view of a store with the lookups of a cut model compiled for it.

    Attributes:
        cut: the model.
        view: what its lookups read.
        plan: the lookups over the view's generation.
    """

    cut: CutModel
    view: StoreView
    plan: LookupPlan

    @classmethod
    def open(cls, cut: CutModel, view: StoreView) -> "CutSource":
        """Compile the lookups of `cut` for a view.

        Raises:
            InvalidInput: the generation has other tables than the plan.
        """
        return cls(cut, view, compile_plan(cut.plan, view.generation, types=cut.id_types))

    def at(self, view: StoreView) -> "CutSource":
        """Return the same lookups for another view; cheap where its generation is the same.

        Raises:
            InvalidInput: its generation has other tables than the plan.
        """
        if view.generation is self.view.generation:
            return replace(self, view=view)
        return CutSource.open(self.cut, view)
