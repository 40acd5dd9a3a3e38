"""A plain reading of how a ranking request becomes rows: one value after another, no columns.

It knows features of one number without a transform; what becomes of single values is the matter of
`plain_features`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch_runtime.ranking.plans import FeaturePlan

__all__ = ["PlainRefusal", "PlainRows", "plain_rows"]

Row = Mapping[str, object]


class PlainRefusal(Exception):
    """The request is refused; its text is how the message begins."""


@dataclass
class PlainRows:
    """What a request comes to.

    Attributes:
        values: feature -> one number for each row; of a user's one.
        defaulted: features whose default stands in somewhere.
        missed: positions whose id the item table lacks.
        bad: position -> how its message begins.
    """

    values: dict[str, list[float]] = field(default_factory=dict)
    defaulted: list[str] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)


def plain_rows(
    features: Sequence[FeaturePlan],
    id_name: str,
    items: Mapping[int, Row],
    user: Row,
    candidates: Row,
    *,
    report: bool,
) -> PlainRows:
    """Read a request.

    Args:
        features: in the order of model.yaml.
        id_name: of the feature that finds items.
        items: id -> feature -> value; all have the same features.
        user: feature -> value.
        candidates: feature -> list of values, or what is none.
        report: whether candidates at fault are left out.

    Raises:
        PlainRefusal: it is refused.
    """
    _check_names(features, id_name, user, candidates)
    filled = {name for row in items.values() for name in row}
    asks_items = any(name not in candidates for name in filled)
    ids = candidates[id_name]
    columns = {name: ids for name in filled} | dict(candidates)
    sent = [columns.get(feature.name) for feature in features]
    rows = next((len(column) for column in sent if isinstance(column, list)), 0)
    is_required = any(one.name == id_name and one.default is None for one in features)
    faults: list[tuple[int | None, str]] = []
    found = PlainRows()
    for feature in features:
        name = feature.name
        if feature.side == "user":
            values: list[object] = [user.get(name)]
        elif name in candidates:
            column = candidates[name]
            if not isinstance(column, list) or len(column) != rows:
                faults.append((None, f"feature {name!r}: "))
                continue
            values = column
        elif name in filled and isinstance(ids, list):
            values = [items.get(one, {}).get(name) if _is_id(one) else None for one in ids]
        elif feature.default is None:
            if name not in filled:
                faults.append((None, f"feature {name!r}: "))
            continue
        else:
            values = [None] * rows
        numbers: list[float] = []
        for row, value in enumerate(values):
            if value is None and feature.default is not None:
                (value,) = feature.default
                if name not in found.defaulted:
                    found.defaulted.append(name)
            if isinstance(value, int | float):
                numbers.append(value)
                continue
            numbers.append(0)
            is_filled = name in filled and name not in candidates
            one = ids[row] if is_filled and isinstance(ids, list) else 0
            if isinstance(one, str) or (one is None and is_required):
                continue  # the id is to blame
            where = "" if feature.side == "user" else f", candidate {row}"
            faults.append((row if where else None, f"feature {name!r}{where}: "))
        found.values[name] = numbers
    if asks_items and isinstance(ids, list):
        found.missed = [row for row, one in enumerate(ids) if _is_id(one) and one not in items]
    for position, text in faults:
        if position is None or not report:
            raise PlainRefusal(text)
        found.bad.setdefault(position, text)
    return found


def _check_names(features: Sequence[FeaturePlan], id_name: str, user: Row, candidates: Row) -> None:
    sides = {feature.name: feature.side for feature in features}
    for sent in (user, candidates):
        for name in sorted(sent):
            if name not in sides:
                raise PlainRefusal(f"feature {name!r}: no such feature")
    for name, side in sides.items():
        if side == "candidate" and name in user:
            raise PlainRefusal(f"feature {name!r}: expected it in candidates")
        if side == "user" and name in candidates:
            raise PlainRefusal(f"feature {name!r}: expected it in user")
    if id_name not in candidates:
        raise PlainRefusal(f"feature {id_name!r}: expected the ids")


def _is_id(value: object) -> bool:
    return isinstance(value, int)
