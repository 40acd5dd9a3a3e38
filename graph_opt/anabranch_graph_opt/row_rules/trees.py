"""Classical models of the ai.onnx.ml operator set: they read [rows, features], row by row."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch_graph_opt.flow import Flow, Mixing, State, plain
from anabranch_graph_opt.row_rules.elementwise import elementwise
from anabranch_graph_opt.row_visit import Rule, Visit

__all__ = ["RULES"]


def _features(visit: Visit) -> Flow:
    data = visit.data(0)
    if data.rank > 2 or data.row_axis not in (None, 0):
        raise Mixing(f"takes axis {data.row_axis} of {visit.name(0)}, the rows, for features")
    if data.rank < 2 and data.space is not None:
        raise Mixing(f"takes the rows of {visit.name(0)} for the features of one row")
    return data


def _same_features(visit: Visit) -> Sequence[State]:
    data = _features(visit)
    return [Flow(data.axes, data.current, data.same)]


def _regressed(visit: Visit) -> Sequence[State]:
    data = _features(visit)
    axes = (data.axes[0] if data.rank == 2 else (), plain(visit.facts.unknown()))
    return [Flow(axes, data.current, data.same)]


def _classified(visit: Visit) -> Sequence[State]:
    """A label for each row, and a score for each row and class."""
    data = _features(visit)
    row = data.axes[0] if data.rank == 2 else ()
    scores = (row, plain(visit.facts.unknown()))
    return [Flow((row,), data.current, data.same), Flow(scores, data.current, data.same)]


RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("LabelEncoder", "CategoryMapper", "Binarizer"), elementwise),
    **dict.fromkeys(("Imputer", "Normalizer", "Scaler"), _same_features),
    **dict.fromkeys(
        ("LinearRegressor", "SVMRegressor", "TreeEnsemble", "TreeEnsembleRegressor"), _regressed
    ),
    **dict.fromkeys(("LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"), _classified),
}
