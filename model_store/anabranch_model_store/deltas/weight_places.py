"""What a delta may name, and where that is: in a table of the store, in graphs, or in both.

Names are those of the original graph's initializers, of tables beside it, and aliases of
model.yaml. A name that cannot be updated is refused with the reason, before anything is changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.weight_maps import tied_copies
from anabranch_model_store.deltas.graph_tensors import WEIGHT_TYPES, GraphTensor, GraphTensors
from anabranch_model_store.deltas.reduced_weights import reduced_weights
from anabranch_model_store.deltas.targets import DeltaTarget
from anabranch_model_store.version_contents import find_onnx_file
from anabranch_model_store.version_files import list_version
from anabranch_wire.errors import AnabranchError, InvalidInput
from anabranch_wire.weight_targets import SliceOrScale, ToDense, ToTable, WeightTarget

__all__ = ["GraphPart", "GraphPlace", "WeightPlace", "WeightPlaces"]

Array = NDArray[np.generic]

GraphPart = Literal["dense", "user", "prelude"]
"""What runs per row, what runs once per user, what makes ids."""

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class GraphPlace:
    """One initializer that holds a weight.

    Attributes:
        part: the graph.
        name: of the initializer there.
        transform: what turns the weight into it.
    """

    part: GraphPart
    name: str
    transform: Literal["none", "transpose"] | SliceOrScale


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """All places that hold what one name means.

    Attributes:
        name: its own name, where it was asked for by an alias.
        table: index into the tables of the target's plan; None where the store has no rows of it.
        graph: places in graphs; where there are any, rows are row numbers.
        shape: of all of it; None where that is not known.
        dtype: that new numbers must have; None where rows of the store take any float type.
    """

    name: str
    table: int | None
    graph: tuple[GraphPlace, ...]
    shape: tuple[int, ...] | None
    dtype: np.dtype[np.generic] | None

    def check_tensor(self, array: Array) -> None:
        """Check that an array can take the place of all of it.

        Raises:
            InvalidInput: it is of another shape or type.
        """
        types = tuple(WEIGHT_TYPES.values()) if self.dtype is None else (self.dtype,)
        if array.dtype not in types:
            expected = " or ".join(str(one) for one in types)
            raise InvalidInput(f"weight {self.name!r} is {array.dtype}; expected {expected}")
        if self.shape is not None and array.shape != self.shape:
            raise InvalidInput(
                f"weight {self.name!r} has shape {list(array.shape)}; expected {list(self.shape)}"
            )

    def check_rows(self, dim: int, deletes: int) -> None:
        """Check that rows of so many numbers can be changed, and so many be taken out.

        Raises:
            InvalidInput: it is no table, its rows have another size, or they lie in a graph, which
                none can be taken out of.
        """
        if self.shape is not None and len(self.shape) != 2:
            raise InvalidInput(
                f"{self.name!r} has shape {list(self.shape)}; rows can be changed of a table, with "
                "two axes: send all of it as a weight"
            )
        if self.shape is not None and self.shape[1] != dim:
            raise InvalidInput(
                f"table {self.name!r}: rows of {dim} numbers; expected {self.shape[1]}"
            )
        if self.graph and deletes:
            raise InvalidInput(
                f"table {self.name!r}: {deletes} deleted rows; its keys are row numbers of a "
                "weight, which rows cannot be taken out of"
            )


@dataclass(frozen=True, slots=True, eq=False)
class WeightPlaces:
    """Where everything of a version is that deltas may change. For any thread.

    Attributes:
        places: by name; aliases are not among them.
        graphs: of the version, as they were before deltas and before the library optimised them.
    """

    places: Mapping[str, WeightPlace]
    graphs: Mapping[GraphPart, GraphTensors]
    _target: DeltaTarget
    _aliases: Mapping[str, str]

    @classmethod
    def of(cls, target: DeltaTarget) -> "WeightPlaces":
        """Find them; of graphs, only names and sizes are read, and what may be copies.

        Raises:
            NotFound, Corrupt, Unavailable: a graph cannot be read.
        """
        graphs: dict[GraphPart, GraphTensors] = {
            part: GraphTensors.read(path) for part, path in _paths(target).items()
        }
        targets = _targets(target, graphs)
        places = {
            name: place
            for name, found in targets.items()
            if (place := _place(name, found, target, graphs)) is not None
        }
        return cls(places, graphs, target, _aliases(target, places))

    def find(self, name: str) -> WeightPlace:
        """Return the places of a name or alias.

        Raises:
            InvalidInput: there is nothing of that name, or it cannot be updated; says why.
        """
        place = self.places.get(self._aliases.get(name, name))
        if place is not None:
            return place
        raise InvalidInput(self._reason(name))

    def array(self, place: WeightPlace) -> Array:
        """Return all of a weight as it was published.

        Raises:
            InvalidInput: no graph holds all of it.
            Corrupt, NotFound, Unavailable: the graph cannot be read.
        """
        for one in place.graph:
            if one.transform in ("none", "transpose"):
                array = self.graphs[one.part].array(one.name)
                return array if one.transform == "none" else np.ascontiguousarray(array.T)
        raise InvalidInput(
            f"table {place.name!r}: no graph holds all of it as it was: send all of it as a weight"
        )

    def _reason(self, name: str) -> str:
        target = self._target
        if target.graphs is None and target.graph_note:
            return f"{name!r} cannot be updated: {target.graph_note}"
        tensor = _original(target).get(name)
        if tensor is None:
            known = sorted({*self.places, *self._aliases})
            shown = ", ".join(map(repr, known[:_SHOWN]))
            more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
            return f"there is no weight or table {name!r}; there are {shown or 'none'}{more}"
        if tensor.dtype is None:
            return (
                f"{name!r} is of {tensor.type_name}; weights that can be updated are of float, "
                "float16, bfloat16 or double"
            )
        if target.meaning.optimize.dense.startswith("int8") and len(tensor.shape) == 2:
            return (
                f"weight {name!r} cannot be updated: a layer holds it in eight bits "
                f"(optimize.dense: {target.meaning.optimize.dense}); publish a version instead"
            )
        return (
            f"weight {name!r} cannot be updated: nothing uses it, or other numbers were made of it "
            "when the model was optimised; publish a version instead"
        )


def _paths(target: DeltaTarget) -> dict[GraphPart, Path]:
    if target.graphs is None:
        return {}
    paths: dict[GraphPart, Path] = {"dense": target.graphs.dense}
    if target.graphs.user is not None:
        paths["user"] = target.graphs.user
    cut = target.model.cut
    if cut is not None and cut.prelude is not None:
        paths["prelude"] = cut.prelude.path
    return paths


def _targets(
    target: DeltaTarget, graphs: Mapping[GraphPart, GraphTensors]
) -> Mapping[str, tuple[WeightTarget, ...]]:
    """Return where each name is, as plans say it."""
    named = {} if target.plan is None else target.plan.weights
    if target.model.cut is not None:
        return named
    # Of one name, the table beside the graph is meant: that is what model.yaml looks up.
    return {**(_whole(target, graphs["dense"]) if graphs else {}), **named}


def _whole(target: DeltaTarget, graph: GraphTensors) -> Mapping[str, tuple[WeightTarget, ...]]:
    """Return where the weights of a graph are that runs whole.

    Weights of layers in eight bits, and what is tied to them, are not among them.
    """
    weights = {name for name, one in graph.tensors.items() if one.dtype is not None}
    own = weights - reduced_weights(target, graph)
    found: dict[str, list[WeightTarget]] = {
        name: [ToDense(name=name, transform="none")] for name in own
    }
    shapes = graph.tensors
    copies = tied_copies(own, own, lambda name: shapes[name].shape, graph.array)
    for name, twin, is_transposed in copies:
        transform: Literal["none", "transpose"] = "transpose" if is_transposed else "none"
        found[name].append(ToDense(name=twin, transform=transform))
    return {name: tuple(one) for name, one in found.items()}


def _place(
    name: str,
    targets: tuple[WeightTarget, ...],
    target: DeltaTarget,
    graphs: Mapping[GraphPart, GraphTensors],
) -> WeightPlace | None:
    """Return the places of a name; None where a graph that holds it takes no new weights."""
    table = next((one.index for one in targets if isinstance(one, ToTable)), None)
    wanted = [one for one in targets if isinstance(one, ToDense)]
    found = list(_in_graphs(wanted, graphs))
    if len({one.name for one, _ in found}) < len({one.name for one in wanted}):
        return None
    shape: tuple[int, ...] | None = None
    dtype = None
    if table is not None and target.plan is not None:
        one = target.plan.tables[table]
        shape = (one.rows, one.dim)
    for place, tensor in found:
        dtype = tensor.dtype
        if dtype is None:
            return None
        if place.transform == "none":
            shape = tensor.shape
        elif place.transform == "transpose" and shape is None:
            shape = tensor.shape[::-1]
        elif isinstance(place.transform, SliceOrScale) and place.transform.slice is None:
            shape = tensor.shape
    return WeightPlace(name, table, tuple(place for place, _ in found), shape, dtype)


def _in_graphs(
    wanted: list[ToDense], graphs: Mapping[GraphPart, GraphTensors]
) -> Iterator[tuple[GraphPlace, GraphTensor]]:
    for one in wanted:
        for part, graph in graphs.items():
            tensor = graph.tensors.get(one.name)
            if tensor is not None:
                yield GraphPlace(part, one.name, one.transform), tensor


def _aliases(target: DeltaTarget, places: Mapping[str, WeightPlace]) -> dict[str, str]:
    """Return the other names of tables, with the name that each has in `places`."""
    found: dict[str, str] = {}
    for name, meaning in target.meaning.tables.items():
        names = (name, *meaning.alias)
        own = next((one for one in names if one in places), None)
        if own is not None:
            found |= dict.fromkeys((one for one in names if one not in places), own)
    return found


def _original(target: DeltaTarget) -> Mapping[str, GraphTensor]:
    """Return the initializers of the original, to say why one cannot be updated."""
    try:
        files = list_version(target.folder, target.snapshot)
        return GraphTensors.read(find_onnx_file(files, target.meaning).path).tensors
    except AnabranchError:  # the answer is no in any case
        return {}
