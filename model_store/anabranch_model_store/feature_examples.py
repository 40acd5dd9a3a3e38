"""Requests of versions with lookups: read and made up, with the graph inputs that they become.

Rows come from a store that lives as long as a version is looked at, by the same code that looks
them up for callers.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.row_axes import RowAxes
from anabranch_graph_opt.signature import Signature
from anabranch_model_store.examples import Array, Example
from anabranch_model_store.npz_files import MAX_BYTES
from anabranch_model_store.warmup_files import Sample
from anabranch_runtime.admission import InputRules
from anabranch_runtime.examples import examples_of
from anabranch_runtime.lookups import Lookups
from anabranch_runtime.row_source import RowSource
from anabranch_runtime.sent_features import LENGTHS, WEIGHTS
from anabranch_wire.errors import InvalidInput, TooLarge

__all__ = ["FeatureExamples"]

_MAX_BAG: Final = 4

Inputs = tuple[Array, ...]


class FeatureExamples:
    """A source of requests for one version. Not safe for several threads at once."""

    def __init__(
        self, signature: Signature, axes: RowAxes, users: Sequence[str], source: RowSource
    ) -> None:
        """Tie lookups to what callers send.

        Args:
            signature: of the graph.
            axes: what axis 0 of every graph input counts.
            users: graph inputs that may hold one user for all rows.
            source: of rows.
        """
        lookups = source.lookups
        self._source = source
        self._specs = signature.inputs
        self._axes = tuple(
            0 if axes.kinds[spec.name].kind == "rows" else None for spec in signature.inputs
        )
        self._rules = InputRules(
            tuple(self._specs[index] for index in lookups.dense),
            tuple(self._axes[index] for index in lookups.dense),
            users,
            MAX_BYTES,
            lookups.features,
        )

    def read(self, sample: Sample) -> Example:
        """Return a request that a version brings along; users are repeated for all rows.

        Raises:
            InvalidInput: its inputs do not go together, or a key is missing that must not be.
            TooLarge: its users, repeated, would be too much.
        """
        try:
            inputs, rows = self._rules.order(sample.inputs)
            return self._example(sample.name, inputs, rows, sample.expected)
        except (InvalidInput, TooLarge) as error:
            raise type(error)(f"{sample.name}: {error.message}") from None

    def made_up(
        self,
        dense: ExampleInputs,
        keys: Mapping[str, NDArray[np.int64]],
        rows: int,
        rng: np.random.Generator,
    ) -> Example:
        """Return a request that nobody sent.

        Args:
            dense: of the inputs that are not looked up.
            keys: feature -> keys to choose from; may be empty.
            rows: of the request.
            rng: for choices.

        Raises:
            InvalidInput: a key is missing that must not be.
        """
        lookups = self._source.lookups
        batch = dense.batch(rows, rng)
        arrays = [batch[self._specs[index].name] for index in lookups.dense]
        for feature in lookups.features:
            known = keys[feature.name]
            lengths = np.full(rows, feature.max_length, np.int64)
            if feature.ragged:
                most = min(_MAX_BAG, feature.max_length) if len(known) else 0
                lengths = rng.integers(0, most + 1, rows)
            ids = rng.choice(known if len(known) else np.zeros(1, np.int64), int(lengths.sum()))
            arrays.append(ids)
            if feature.ragged:
                arrays.append(lengths)
            if feature.weighted:
                arrays.append(rng.random(len(ids), np.float32))
        return self._example("a made-up request", tuple(arrays), rows, {})

    def padded(self, example: Example, rows: int, missing: int) -> Example:
        """Return `example` with its last row `missing` more times; it has at least one row."""
        inputs, _ = self._rules.order(example.request)
        lookups = self._source.lookups
        last = lookups.cut(inputs, self._axes, (0, rows - 1, rows))[1] if rows > 1 else inputs
        padded = []
        for index, (whole, part) in enumerate(zip(inputs, last, strict=True)):
            axis = self._axes[lookups.dense[index]] if index < len(lookups.dense) else 0
            padded.append(whole if axis is None else np.concatenate([whole, *([part] * missing)]))
        return self._example(example.name, tuple(padded), rows + missing, example.expected)

    def _example(
        self, name: str, inputs: Inputs, rows: int, expected: Mapping[str, Array]
    ) -> Example:
        every = self._for_every_row(inputs, rows)
        request = self._named(every)
        found = examples_of([request], self._rules, self._axes, self._source)
        ((taken, _),) = found.requests
        graph = {spec.name: array for spec, array in zip(self._specs, taken, strict=True)}
        return Example(name, request, graph, expected)

    def _for_every_row(self, inputs: Inputs, rows: int) -> Inputs:
        """Repeat what is looked up once for the whole request."""
        lookups = self._source.lookups
        if rows == 0 or lookups.users(inputs, rows) == rows:
            return inputs
        repeated = list(inputs)
        for feature, place in zip(lookups.features, lookups.places, strict=True):
            if feature.once:
                for at in (place.ids, place.lengths, place.weights):
                    if at is not None:
                        repeated[at] = np.tile(inputs[at], rows)
        return tuple(repeated)

    def _named(self, inputs: Inputs) -> dict[str, Array]:
        """Return the inputs of a request by the names by which callers send them."""
        lookups: Lookups = self._source.lookups
        named = {self._specs[index].name: inputs[at] for at, index in enumerate(lookups.dense)}
        for feature, place in zip(lookups.features, lookups.places, strict=True):
            shape = (-1,) if feature.ragged else (-1, feature.max_length)
            named[feature.name] = inputs[place.ids].reshape(shape)
            if place.lengths is not None:
                named[feature.name + LENGTHS] = inputs[place.lengths]
            if place.weights is not None:
                named[feature.name + WEIGHTS] = inputs[place.weights].reshape(shape)
        return named
