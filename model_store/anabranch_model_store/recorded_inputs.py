"""Made-up requests whose numbers are those of recorded ones.

What fewer bits do to answers depends on how large numbers are, and those that are made up from a
graph are between 0 and 1.
"""

from collections.abc import Mapping

import numpy as np

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.running import Array
from anabranch_model_store.version_contents import VersionContents

__all__ = ["RecordedInputs", "inputs_like_recorded"]


class RecordedInputs(ExampleInputs):
    """A source of made-up batches; floats of each row are those of some recorded row.

    Args:
        contents: of a version; its warm-up requests are the recorded ones.
    """

    def __init__(self, contents: VersionContents) -> None:
        super().__init__(contents.signature, contents.graph, contents.axes)
        self._seen = dict(_recorded(contents))

    def batch(self, rows: int, rng: np.random.Generator) -> dict[str, Array]:
        """Return one array for each input; see `ExampleInputs`."""
        made = super().batch(rows, rng)
        for name, seen in self._seen.items():
            if made[name].shape[1:] == seen.shape[1:]:
                made[name] = seen[rng.integers(0, len(seen), len(made[name]))]
        return made


def inputs_like_recorded(contents: VersionContents) -> ExampleInputs:
    """Return a source of made-up batches, like the recorded ones where the version has some."""
    if contents.samples and contents.lookups is None:
        return RecordedInputs(contents)
    return ExampleInputs(contents.signature, contents.graph, contents.axes)


def _recorded(contents: VersionContents) -> Mapping[str, Array]:
    """Return for each float input with rows those of all requests, one below the other."""
    found = {}
    for spec in contents.signature.inputs:
        arrays = [sample.inputs[spec.name] for sample in contents.samples]
        has_rows = contents.row_axes.kinds[spec.name].kind == "rows"
        alike = len({array.shape[1:] for array in arrays}) == 1
        if has_rows and alike and arrays[0].dtype.kind == "f":
            together = np.concatenate(arrays)
            if len(together):
                found[spec.name] = together
    return found
