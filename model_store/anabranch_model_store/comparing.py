"""Whether answers are the expected ones, within a stated budget."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from anabranch_wire.errors import InvalidInput

__all__ = ["check_answers"]

Array = NDArray[np.generic]


def check_answers(
    found: Mapping[str, Array], expected: Mapping[str, Array], max_abs_diff: float, what: str
) -> None:
    """Check that `found` holds what is `expected`.

    Floats may differ by `max_abs_diff`, or by that share of the expected number where it is larger
    than 1; NaN equals NaN. Everything else has to be equal.

    Args:
        found: output -> answer.
        expected: output -> wanted answer; outputs that are not here are not looked at.
        max_abs_diff: budget.
        what: how messages name the request.

    Raises:
        InvalidInput: an answer differs; the message names output, place, expected and found.
    """
    for name, wanted in expected.items():
        answer = found[name]
        if answer.shape != wanted.shape:
            raise InvalidInput(
                f"{what}: output {name!r}: expected shape {list(wanted.shape)}, "
                f"found {list(answer.shape)}"
            )
        wrong = _differs(answer, wanted, max_abs_diff)
        if wrong.any():
            place = tuple(int(index) for index in np.argwhere(wrong)[0])
            raise InvalidInput(
                f"{what}: output {name!r} at {list(place)}: expected {wanted[place]!s}, "
                f"found {answer[place]!s}; {int(wrong.sum())} of {wrong.size} elements differ by "
                f"more than {max_abs_diff:g}"
            )


def _differs(found: Array, wanted: Array, max_abs_diff: float) -> NDArray[np.bool_]:
    if wanted.dtype.kind != "f":
        return np.asarray(found != wanted, np.bool_)
    answer, target = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        near = np.abs(answer - target) <= max_abs_diff * np.maximum(1.0, np.abs(target))
    same = (answer == target) | (np.isnan(answer) & np.isnan(target))
    return np.asarray(~((near & np.isfinite(target)) | same))
