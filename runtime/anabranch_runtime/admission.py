"""Compiled checks of one model's inputs: names, datatypes, shapes, rows.

A front door asks `find` per tensor before it touches the data, then `order` once per request.
Nothing here allocates by a size the caller chose; user rows that were sent once become views that
repeat them for every row, within a bound on what they amount to. Features come out in the form
that `anabranch_runtime.features` describes, behind the dense inputs.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.feature_rules import FeatureRules, repeated
from anabranch_runtime.features import FeatureInput
from anabranch_runtime.models import DenseModel
from anabranch_runtime.sent_features import SentFeature
from anabranch_wire.errors import InvalidInput, TooLarge
from anabranch_wire.tensors import TensorSpec

__all__ = ["InputRules"]

_TEXT_BYTES: Final = 64


class InputRules:
    """Checks for the inputs of one model. Immutable and safe from any thread.

    Attributes:
        specs: declared dense inputs, in order.
        has_features: whether there are features too; then what `order` returns depends on the
            values of arrays, not only on their shapes.
    """

    def __init__(
        self,
        specs: tuple[TensorSpec, ...],
        row_axes: tuple[int | None, ...],
        user_inputs: Collection[str] = (),
        max_repeated_bytes: int = 0,
        features: tuple[FeatureInput, ...] = (),
    ) -> None:
        """Compile the checks.

        Args:
            specs: declared dense inputs, in order.
            row_axes: per dense input the axis that carries the rows, None where there is none.
            user_inputs: dense inputs that may hold one user for all rows of a request; each has its
                rows on axis 0.
            max_repeated_bytes: of the user inputs of one request, once repeated for its rows.
            features: whose arrays follow those of the dense inputs.

        Raises:
            ValueError: a user input is none of the model, or has no rows on axis 0.
        """
        self.specs = specs
        self.has_features = bool(features)
        self._features = FeatureRules(features)
        self._index: Mapping[str, int] = {spec.name: i for i, spec in enumerate(specs)}
        self._row_axes = row_axes
        self._users = frozenset(user_inputs)
        self._max_repeated_bytes = max_repeated_bytes
        rowed = {spec.name for spec, axis in zip(specs, row_axes, strict=True) if axis == 0}
        if not self._users <= rowed:
            raise ValueError(f"user inputs {sorted(self._users - rowed)} have no rows on axis 0")

    @classmethod
    def of(
        cls, model: DenseModel, user_inputs: Collection[str] = (), max_repeated_bytes: int = 0
    ) -> "InputRules":
        """Compile the checks for requests to `model`; see `__init__`.

        Args:
            model: whose rows may be looked up; then inputs that lookups fill are not sent.
            user_inputs: of the graph or of the features, whatever may hold one user.
            max_repeated_bytes: as for `__init__`.
        """
        lookups = model.lookups
        axes = model.rows.input_axes
        if lookups is None:
            return cls(model.inputs, axes, user_inputs, max_repeated_bytes)
        specs = tuple([model.inputs[index] for index in lookups.dense])
        sent = {spec.name for spec in specs}
        return cls(
            specs,
            tuple([axes[index] for index in lookups.dense]),
            [name for name in user_inputs if name in sent],
            max_repeated_bytes,
            lookups.features,
        )

    def find(self, name: str, datatype: str, shape: Sequence[int]) -> TensorSpec:
        """Return the declared input that a sent tensor is for.

        Raises:
            InvalidInput: no such input, another datatype, or a shape that the input cannot have.
        """
        index = self._index.get(name)
        if index is None:
            part = self._features.find(name, datatype, shape)
            if part is not None:
                return part
            raise InvalidInput(
                f"input {name[:200]!r}: no such input; expected {self._expected_names()}"
            )
        spec = self.specs[index]
        if datatype != spec.datatype:
            raise InvalidInput(
                f"input {name!r}: expected datatype {spec.datatype}, got {datatype[:40]!r}"
            )
        declared = spec.shape
        if len(shape) != len(declared):
            raise InvalidInput(self._shape_text(spec, shape))
        for size, wanted in zip(shape, declared, strict=True):
            if size < 0 or (size != wanted and wanted != -1):
                raise InvalidInput(self._shape_text(spec, shape))
        return spec

    def rows_in(self, name: str, shape: Sequence[int]) -> int:
        """Return the rows of a tensor that `find` accepted; 1 where it has no row axis."""
        index = self._index.get(name)
        if index is None:
            return self._features.rows_in(name, shape)
        axis = self._row_axes[index]
        return 1 if axis is None else shape[axis]

    def is_bag(self, name: str) -> bool:
        """Whether an input says how the ids of a feature are cut into rows.

        A request with one has hardly ever the shapes of another.
        """
        return self._features.is_bag(name)

    def order(
        self, arrays: Mapping[str, NDArray[np.generic]]
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Put named arrays into the model's order and count the rows.

        Args:
            arrays: input name -> array, each already accepted by `find`.

        Returns:
            The arrays in order, those of features behind the dense ones, and the number of rows:
            the common size of the row axes; for a model without any, 1. A user input of one row
            among inputs of more, or of none, comes back as a read-only view that repeats it.

        Raises:
            InvalidInput: an input is missing, inputs disagree on the number of rows, or the parts
                of a feature do not fit each other.
            TooLarge: users repeated for every row would be too much.
        """
        try:
            ordered = tuple([arrays[spec.name] for spec in self.specs])
        except KeyError as missing:
            raise self._missing(missing) from None
        rows = -1
        for array, axis in zip(ordered, self._row_axes, strict=True):
            if axis is None:
                continue
            size = array.shape[axis]
            if rows < 0:
                rows = size
            elif size != rows:
                if self.has_features:
                    return self._order_features(ordered, arrays)
                return self._repeat_users(ordered)
        if self.has_features:
            usual = self._features.usual(arrays, rows)
            if usual is None or usual[2] + len(ordered) != len(arrays):
                return self._order_features(ordered, arrays)
            return (*ordered, *usual[0]), usual[1]
        return ordered, 1 if rows < 0 else rows

    def is_repeated(self, name: str, size: int, rows: int) -> bool:
        """Whether an input with `size` on axis 0 is one user for all of `rows` rows."""
        return size == 1 and rows != 1 and name in self._users

    def _repeat_users(
        self, ordered: tuple[NDArray[np.generic], ...]
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Let the users of a request whose inputs differ in rows stand for all of its rows."""
        sizes = {
            array.shape[axis]
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None and not (array.shape[axis] == 1 and spec.name in self._users)
        }
        if len(sizes) != 1:
            raise InvalidInput(self._rows_text(ordered))
        rows = sizes.pop()
        views, total_bytes = self._views_of_users(ordered, rows)
        self._check_repeated(total_bytes, rows)
        return views, rows

    def _views_of_users(
        self, ordered: tuple[NDArray[np.generic], ...], rows: int
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Repeat the users among dense inputs, and return the bytes that they amount to."""
        views: list[NDArray[np.generic]] = []
        total_bytes = 0
        for spec, array in zip(self.specs, ordered, strict=True):
            if array.ndim and self.is_repeated(spec.name, len(array), rows):
                total_bytes += rows * _bytes_of(array)
                array = np.broadcast_to(array, (rows, *array.shape[1:]))
            views.append(array)
        return tuple(views), total_bytes

    def _check_repeated(self, total_bytes: int, rows: int) -> None:
        if total_bytes > self._max_repeated_bytes:
            raise TooLarge(
                f"user inputs repeated for {rows} rows are {total_bytes} bytes: at most "
                f"{self._max_repeated_bytes} are allowed"
            )

    # --- features -------------------------------------------------------------------------------

    def _order_features(
        self,
        ordered: tuple[NDArray[np.generic], ...],
        arrays: Mapping[str, NDArray[np.generic]],
    ) -> tuple[tuple[NDArray[np.generic], ...], int]:
        """Put features in normal form behind the dense inputs, and count the rows."""
        try:
            sent = self._features.sent(arrays)
        except KeyError as missing:
            raise self._missing(missing) from None
        rows = self._rows_with(ordered, sent)
        views, total_bytes = self._views_of_users(ordered, rows)
        counts = [one.rows_of(rows) for one in sent]
        normal = [one.normal(count) for one, count in zip(sent, counts, strict=True)]
        # All that is looked up once must be of the same users: one, or one for each row.
        users = {count for one, count in zip(sent, counts, strict=True) if one.feature.once}
        is_kept = rows > 1 and users == {1}
        repeats = [
            count != rows and not (one.feature.once and is_kept)
            for one, count in zip(sent, counts, strict=True)
        ]
        for parts, is_repeated in zip(normal, repeats, strict=True):
            if is_repeated:
                total_bytes += rows * sum([array.nbytes for array in parts])
        self._check_repeated(total_bytes, rows)
        flat = list(views)
        for parts, is_repeated in zip(normal, repeats, strict=True):
            flat += repeated(parts, rows) if is_repeated else parts
        return tuple(flat), rows

    def _rows_with(self, ordered: tuple[NDArray[np.generic], ...], sent: list[SentFeature]) -> int:
        """Return the rows of a request: as inputs say that know, else as offsets say alone."""
        known = [
            (array.shape[axis], spec.name in self._users)
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None
        ]
        known += [(one.rows, one.feature.is_user) for one in sent if one.rows is not None]
        sizes = {size for size, may_be_one in known if not (may_be_one and size == 1)}
        if not sizes:
            alone = [one for one in sent if one.rows is None]
            counts = [(one.rows_alone, one.feature.is_user) for one in alone]
            sizes = {size for size, may_be_one in counts if not (may_be_one and size == 1)}
        if len(sizes) > 1:
            raise InvalidInput(self._rows_text(ordered, sent))
        return sizes.pop() if sizes else 1

    # --- messages -------------------------------------------------------------------------------

    def _missing(self, name: KeyError) -> InvalidInput:
        return InvalidInput(f"input {name.args[0]!r} is missing; expected {self._expected_names()}")

    def _expected_names(self) -> str:
        names = [spec.name for spec in self.specs]
        names += [feature.name for feature in self._features.features]
        shown = ", ".join(repr(name) for name in names[:20])
        return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"

    def _shape_text(self, spec: TensorSpec, shape: Sequence[int]) -> str:
        expected = f"input {spec.name!r}: expected shape {spec.shape_text}"
        if min(shape, default=0) < 0:
            expected += " with the sizes that were sent, each at least 0"
        return f"{expected}, got {list(shape)[:20]}"

    def _rows_text(
        self, ordered: tuple[NDArray[np.generic], ...], sent: Sequence[SentFeature] = ()
    ) -> str:
        counts = [
            f"{spec.name!r} has {array.shape[axis]}"
            for spec, array, axis in zip(self.specs, ordered, self._row_axes, strict=True)
            if axis is not None
        ]
        counts += [f"{one.feature.name!r} has {one.rows_alone}" for one in sent]
        names = sorted({*self._users, *[f.name for f in self._features.features if f.is_user]})
        users = f"; {', '.join(names)} may have 1" if names else ""
        text = ", ".join(counts)
        return f"inputs disagree on the number of rows: {text[:1000]}{users[:1000]}"


def _bytes_of(array: NDArray[np.generic]) -> int:
    """Bytes that a backend needs for `array`; each string becomes an object of its own."""
    if array.dtype != np.object_:
        return array.nbytes
    return array.size * _TEXT_BYTES + sum(map(len, array.ravel().tolist()))
