"""What a cut model is made of, in the cache folder: graphs, rows, and the plan that ties them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from anabranch_graph_opt.graph_files import write_graph
from anabranch_graph_opt.optimized import Optimized
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_model_store.cut_tables import cut_bytes, cut_tables, import_cut_tables
from anabranch_model_store.cut_trials import CutTrial, open_cut_trial
from anabranch_model_store.model_yaml import TableMeaning
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_runtime.cut_models import cut_model
from anabranch_runtime.models import DenseModel, part_model
from anabranch_wire.errors import Unavailable
from anabranch_wire.plan import Graphs, Plan, PlanInput, PlanTable, Source

__all__ = ["CutParts", "Fits", "PartFiles", "opened_parts", "write_graphs"]

_FORMAT: Final = "cut 3"
_DENSE: Final = "dense.onnx"
_PRELUDE: Final = "prelude.onnx"
_USER: Final = "user.onnx"

Fits = Callable[[int, int], None]
"""Given bytes of graphs and of tables; see `check_fits`."""


@dataclass(frozen=True, slots=True, eq=False)
class CutParts:
    """What a cut model is made of.

    Attributes:
        model: the original, with what runs in its place.
        plan: of its lookups.
        weight_bytes: of its graphs.
        segment: its rows.
    """

    model: DenseModel
    plan: Plan
    weight_bytes: int
    segment: Path


@dataclass(frozen=True, slots=True, eq=False)
class PartFiles:
    """Writes the parts of one version.

    Attributes:
        signature: of the original.
        source: of its graph.
        digest: of its graph, external weights among it.
        tables: `tables` of model.yaml.
        settings: where rows and graphs are kept.
        model: the original.
        fits: raises where graphs and tables of so many bytes do not fit into memory.
    """

    signature: Signature
    source: Source
    digest: str
    tables: Mapping[str, TableMeaning]
    settings: StoreSettings
    model: DenseModel
    fits: Fits

    def write(self, optimized: Optimized, precision: str) -> CutParts:
        """Write graphs and import rows; what was written before is found again.

        Args:
            optimized: the model.
            precision: what numbers of its graphs depend on, beside those of the original.

        Raises:
            InvalidInput: rows cannot be kept.
            Unavailable: the cache cannot be written.
            TooLarge: as `fits`.
        """
        settings, model = self.settings, self.model
        assert settings.graphs is not None
        tables = cut_tables(optimized.tables, self.tables, settings.reserve)
        plan = self._plan(optimized, tables)
        once = ",".join(optimized.user_inputs)
        key = "\n".join((_FORMAT, self.digest, optimized.structure_hash, once, precision))
        folder = settings.graphs.get(key, lambda place: write_graphs(optimized, place))
        weight_bytes = sum(path.stat().st_size for path in folder.iterdir())
        self.fits(weight_bytes, cut_bytes(tables))
        segment = import_cut_tables(
            optimized.tables, tables, self.digest, settings.segments, settings.on_bytes
        )
        cut = cut_model(
            plan,
            model.inputs,
            _part(folder / _DENSE),
            None if optimized.prelude is None else _part(folder / _PRELUDE),
            None if optimized.user is None else _part(folder / _USER),
            optimized.user_inputs,
        )
        return CutParts(replace(model, cut=cut), plan, weight_bytes, segment)

    def _plan(self, optimized: Optimized, tables: tuple[PlanTable, ...]) -> Plan:
        symbols = self.signature.symbols
        return Plan(
            format=1,
            source=self.source,
            structure_hash=optimized.structure_hash,
            graphs=Graphs(
                dense=_DENSE,
                prelude=None if optimized.prelude is None else _PRELUDE,
                user=None if optimized.user is None else _USER,
            ),
            tables=tables,
            buffers=optimized.buffers,
            lookups=optimized.lookups,
            pass_through=optimized.pass_through,
            weights=dict(optimized.weights),
            inputs=tuple(
                PlanInput(
                    name=spec.name,
                    datatype=spec.datatype,
                    shape=spec.shape,
                    symbols=symbols[spec.name],
                )
                for spec in optimized.inputs
            ),
            user_inputs=optimized.user_inputs,
        )


@contextmanager
def opened_parts(model: DenseModel, segment: Path) -> Iterator[CutTrial]:
    """Open a cut model over the rows of a segment; see `open_cut_trial`.

    Raises:
        AnabranchError: a graph cannot be built, or the segment does not fit.
        Unavailable: there is no memory to be had.
    """
    try:
        with open_cut_trial(model, segment) as trial:
            yield trial
    except OSError as error:
        raise Unavailable(f"rows cannot be opened: {error.strerror or error}") from None


def write_graphs(optimized: Optimized, place: Path) -> None:
    """Write the graphs of an optimised model to a folder."""
    write_graph(optimized.dense, place / _DENSE)
    if optimized.prelude is not None:
        write_graph(optimized.prelude, place / _PRELUDE)
    if optimized.user is not None:
        write_graph(optimized.user, place / _USER)


def _part(path: Path) -> DenseModel:
    signature = read_signature(path)
    return part_model(path, signature.inputs, signature.outputs)
