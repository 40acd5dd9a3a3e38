"""A cut model in the place of a whole one, for analyses that run models."""

import os
from collections.abc import Mapping

from anabranch_graph_opt.running import Array
from anabranch_model_store.cut_trials import CutTrial

__all__ = ["TrialRunner"]


class TrialRunner:
    """A `ModelRunner` that runs one cut model, whatever it is asked for. For one thread."""

    def __init__(self, trial: CutTrial) -> None:
        self._trial = trial

    def run(
        self, model: str | os.PathLike[str] | bytes, inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return every output by name; see `ModelRunner`."""
        return self._trial.run(inputs)
