"""Features as they were sent: four forms, checked and brought into the normal form.

Flat ids with `name.lengths`; flat ids with `name.offsets`, where each row begins, with or without
an end; padded ids [N, L]; and, of a feature that is not ragged, ids [N, L], or [N] with one each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.features import FeatureInput
from anabranch_wire.errors import InvalidInput

__all__ = ["LENGTHS", "OFFSETS", "WEIGHTS", "SentFeature", "sent_feature"]

LENGTHS = ".lengths"
OFFSETS = ".offsets"
WEIGHTS = ".weights"

Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class SentFeature:
    """One feature of one request; every array was accepted by `FeatureRules.find`.

    Attributes:
        feature: which.
        form: how rows are told from each other.
        ids: as sent.
        bags: lengths or offsets, as sent.
        weights: as sent, if at all; of the shape of the ids.
    """

    feature: FeatureInput
    form: Literal["fixed", "padded", "lengths", "offsets"]
    ids: Array
    bags: Array | None
    weights: Array | None

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where offsets leave that to other inputs."""
        if self.form == "offsets":
            return None
        return len(self.ids if self.bags is None else self.bags)

    @property
    def rows_alone(self) -> int:
        """How many rows it has where no other input says so: the last offset may be an end."""
        if self.bags is None or self.form != "offsets":
            return len(self.ids if self.bags is None else self.bags)
        count = len(self.bags)
        return count - 1 if count and int(self.bags[-1]) == self.ids.size else count

    def rows_of(self, rows: int) -> int:
        """Return how many rows it has in a request of `rows` rows: so many, or one for all.

        Raises:
            InvalidInput: there are neither so many nor, for a user, one.
        """
        may_be_one = self.feature.is_user
        if self.form != "offsets" or self.bags is None:
            found = self.rows_alone
            if found == rows or (found == 1 and may_be_one):
                return found
        else:
            found = len(self.bags)
            if found in (rows, rows + 1):
                return rows
            if may_be_one and found in (1, 2):
                return 1
        one = " or 1" if may_be_one else ""
        ends = " or one more" if self.form == "offsets" else ""
        raise InvalidInput(
            f"feature {self.feature.name!r}: expected {rows}{one} {self._counted}{ends}, "
            f"as the other inputs have {rows} rows, got {found}"
        )

    def normal(self, rows: int) -> tuple[Array, ...]:
        """Return its arrays in normal form.

        Args:
            rows: as `rows_of` told.

        Raises:
            InvalidInput: its lengths or offsets do not fit its ids; the message names the row.
        """
        feature = self.feature
        ids = self.ids.reshape(-1)
        arrays = [ids]
        if feature.ragged:
            arrays.append(self._lengths(rows))
        if feature.weighted:
            weights = self.weights
            arrays.append(np.ones(ids.size, np.float32) if weights is None else weights.reshape(-1))
        return tuple(arrays)

    @property
    def _counted(self) -> str:
        return self.form if self.form in ("lengths", "offsets") else "rows"

    def _lengths(self, rows: int) -> NDArray[np.int64]:
        feature = self.feature
        if self.form == "padded":
            width = self.ids.shape[1]
            if width > feature.max_length:
                raise InvalidInput(
                    f"feature {feature.name!r}: expected at most {feature.max_length} ids in a "
                    f"row, got {width}"
                )
            return np.full(rows, width, np.int64)
        assert self.bags is not None
        bags = self.bags.astype(np.int64, copy=False)
        lengths = self._between(bags, rows) if self.form == "offsets" else bags
        # As unsigned numbers, negative ones are the greatest of all: one look finds both faults.
        most = min(feature.max_length, self.ids.size)
        if rows and int(np.maximum.reduce(lengths.view(np.uint64))) > most:
            self._refuse_lengths(lengths)
        total = int(np.add.reduce(lengths))
        if total != self.ids.size:
            raise InvalidInput(
                f"feature {feature.name!r}: expected lengths that add up to its {self.ids.size} "
                f"ids, got {total}"
            )
        return lengths

    def _between(self, offsets: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
        """Lengths of the rows that begin at `offsets`."""
        name, count = self.feature.name, self.ids.size
        if not len(offsets):
            return offsets
        if offsets[0] != 0:
            raise InvalidInput(
                f"feature {name!r}, row 0: expected offsets that begin with 0, got {offsets[0]}"
            )
        if int(np.maximum.reduce(offsets.view(np.uint64))) > count:
            row = int(np.argmax(offsets.view(np.uint64) > count))
            raise InvalidInput(
                f"feature {name!r}, row {row}: expected an offset from 0 to its {count} ids, "
                f"got {offsets[row]}"
            )
        if len(offsets) > rows and offsets[-1] != count:
            raise InvalidInput(
                f"feature {name!r}: expected {count} as the last of {rows + 1} offsets, the "
                f"number of its ids, got {offsets[-1]}"
            )
        lengths = np.empty(rows, np.int64)
        np.subtract(offsets[1:], offsets[:-1], out=lengths[: len(offsets) - 1])
        if len(offsets) == rows:
            lengths[-1] = count - offsets[-1]
        if int(np.minimum.reduce(lengths, initial=0)) < 0:
            row = int(np.argmax(lengths < 0))
            raise InvalidInput(
                f"feature {name!r}, row {row + 1}: expected an offset of at least "
                f"{offsets[row]}, where the row before begins, got {offsets[row + 1]}"
            )
        return lengths

    def _refuse_lengths(self, lengths: NDArray[np.int64]) -> NoReturn:
        name, most = self.feature.name, self.feature.max_length
        wrong = (lengths < 0) | (lengths > most)
        if wrong.any():
            row = int(np.argmax(wrong))
            expected = "a length of at least 0" if lengths[row] < 0 else f"at most {most} ids"
            raise InvalidInput(
                f"feature {name!r}, row {row}: expected {expected}, got {lengths[row]}"
            )
        row = int(np.argmax(lengths > self.ids.size))
        raise InvalidInput(
            f"feature {name!r}, row {row}: expected at most its {self.ids.size} ids, "
            f"got {lengths[row]}"
        )


def sent_feature(feature: FeatureInput, arrays: Mapping[str, Array]) -> SentFeature:
    """Return a feature with the parts of it that were sent.

    Args:
        feature: which.
        arrays: input name -> array; its ids are there.

    Raises:
        InvalidInput: the parts do not make up one of the forms.
    """
    name = feature.name
    ids = arrays[name]
    weights = arrays.get(name + WEIGHTS) if feature.weighted else None
    if weights is not None and weights.shape != ids.shape:
        raise InvalidInput(
            f"feature {name!r}: expected weights of shape {list(ids.shape)}, one for each id, got "
            f"{list(weights.shape)}"
        )
    if not feature.ragged:
        return SentFeature(feature, "fixed", ids, None, weights)
    lengths, offsets = arrays.get(name + LENGTHS), arrays.get(name + OFFSETS)
    if ids.ndim == 2:
        if lengths is not None or offsets is not None:
            raise InvalidInput(
                f"feature {name!r}: expected flat ids beside lengths or offsets, got shape "
                f"{list(ids.shape)}"
            )
        return SentFeature(feature, "padded", ids, None, weights)
    if (lengths is None) == (offsets is None):
        found = "neither" if lengths is None else "both"
        raise InvalidInput(
            f"feature {name!r}: expected {name + LENGTHS!r} or {name + OFFSETS!r} beside flat "
            f"ids, got {found}"
        )
    if lengths is not None:
        return SentFeature(feature, "lengths", ids, lengths, weights)
    return SentFeature(feature, "offsets", ids, offsets, weights)
