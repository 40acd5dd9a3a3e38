"""Where the columns of a request belong: each feature by its name, on its side, once."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from anabranch_runtime.ranking.plans import FeaturePlan
from anabranch_runtime.ranking.requests import ArrayColumn, Column, RankRequest
from anabranch_wire.errors import InvalidInput

__all__ = ["Placement", "unknown_name"]

_NAME_CHARACTERS = 200
"""Of a caller's name that messages show."""

_NAMES = 20
"""That messages list."""


class Placement:
    """Names and sides of a version's features. Immutable; any thread may call it.

    Args:
        features: in the plan's order.
    """

    def __init__(self, features: Sequence[FeaturePlan]) -> None:
        self._names = tuple([feature.name for feature in features])
        self._user = _positions(features, "user")
        self._candidates = _positions(features, "candidate")

    def place(self, request: RankRequest) -> list[Column | ArrayColumn | None]:
        """Return the columns of a request in the plan's order, None for what was left out.

        Raises:
            InvalidInput: a feature is unknown, or was sent on the wrong side. Which one is named
                does not depend on the order in which they were sent.
        """
        columns: list[Column | ArrayColumn | None] = [None] * len(self._names)
        try:
            positions = self._user
            for name, column in request.user.items():
                columns[positions[name]] = column
            positions = self._candidates
            for name, column in request.candidates.items():
                columns[positions[name]] = column
        except KeyError:
            self._refuse(request)
        return columns

    def _refuse(self, request: RankRequest) -> NoReturn:
        known = {*self._user, *self._candidates}
        for sent in (request.user, request.candidates):
            unknown = [name for name in sent if name not in known]
            if unknown:
                raise InvalidInput(unknown_name("feature", min(unknown), self._names))
        for name in self._names:
            if name in request.user and name in self._candidates:
                raise InvalidInput(f"feature {name!r}: expected it in candidates, found it in user")
            if name in request.candidates and name in self._user:
                raise InvalidInput(f"feature {name!r}: expected it in user, found it in candidates")
        raise AssertionError("some feature was out of place")


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that nothing has, with the one that was probably meant.

    Args:
        what: kind of thing: `feature`.
        name: the caller's; of any length.
        known: all names of that kind.
    """
    shown = name[:_NAME_CHARACTERS]
    names = list(known)
    close = difflib.get_close_matches(shown, names, n=1)
    if close:
        return f"{what} {shown!r}: no such {what}; did you mean {close[0]!r}?"
    listed = ", ".join([repr(one) for one in names[:_NAMES]])
    more = ", ..." if len(names) > _NAMES else ""
    return f"{what} {shown!r}: no such {what}; expected {listed or 'none'}{more}"


def _positions(features: Sequence[FeaturePlan], side: str) -> Mapping[str, int]:
    return {feature.name: at for at, feature in enumerate(features) if feature.side == side}
