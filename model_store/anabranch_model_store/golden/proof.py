"""Running the golden requests of a version: decode, hash, look up, run, calibrate, compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from anabranch_model_store.golden.cases import GoldenCase, read_cases
from anabranch_model_store.golden.differences import (
    GoldenDifference,
    different_key,
    different_score,
)
from anabranch_model_store.golden.keys import feature_keys
from anabranch_model_store.golden.trial import GoldenTrial, TriedModel, open_trial
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_files import VersionFiles
from anabranch_runtime.ranking.feature_program import ColumnLimits
from anabranch_runtime.ranking.plans import FeaturePlan, RankingPlan
from anabranch_runtime.ranking.rules import PreparedRanking, RankingRules
from anabranch_wire.errors import AnabranchError, InvalidInput, Unavailable

__all__ = ["GoldenReport", "GoldenRows", "GoldenVersion", "prove", "prove_cases"]

_LIMITS: Final = ColumnLimits(max_rows=65_536, max_values=20_000_000, max_string_bytes=1 << 20)


class GoldenRows(Protocol):
    """Rows of a version; a `PreparedStore` is that."""

    @property
    def segment(self) -> Path:
        """File with them, as they were published."""
        ...


class GoldenVersion(TriedModel, Protocol):
    """A version that may have golden requests; a `PreparedVersion` is one."""

    @property
    def store(self) -> GoldenRows | None:
        """Rows that it looks up."""
        ...

    @property
    def deployment(self) -> Deployment:
        """How it is run."""
        ...

    @property
    def ranking(self) -> RankingPlan | None:
        """How it ranks."""
        ...


@dataclass(frozen=True, slots=True)
class GoldenReport:
    """What the golden requests of a version showed.

    Attributes:
        files: names of those that were run.
        keys: rows of keys that were compared.
        scores: scores that were compared.
        max_abs_diff: of scores, at most.
        difference: the first one; what comes after it was not looked at.
        unproven: features without keys in any file, in the order of model.yaml; those that feed
            nothing have none.
    """

    files: tuple[str, ...]
    keys: int
    scores: int
    max_abs_diff: float
    difference: GoldenDifference | None
    unproven: tuple[str, ...]


def prove(files: VersionFiles, version: GoldenVersion) -> GoldenReport:
    """Run the golden requests of a version until one shows a difference.

    Args:
        files: of the version.
        version: prepared.

    Raises:
        InvalidInput: a file is malformed, or its request does not fit the version or is refused.
        TooLarge: files are too many or too large.
        AnabranchError: the version cannot be built.
    """
    return prove_cases(read_cases(files), version)


def prove_cases(
    cases: Sequence[GoldenCase], version: GoldenVersion, runs: Sequence[Path] = ()
) -> GoldenReport:
    """Run golden requests until one shows a difference.

    Args:
        cases: the requests.
        version: prepared.
        runs: what deltas make of its rows.

    Raises:
        InvalidInput: a request does not fit the version or is refused.
        AnabranchError: the version cannot be built.
    """
    plan = version.ranking
    if plan is None and cases:
        raise InvalidInput(
            f"{cases[0].name}: model.yaml has no ranking section, so no ranking request can be run"
        )
    if plan is None:
        return GoldenReport((), 0, 0, 0.0, None, ())
    rules = RankingRules(plan, version.model.outputs)
    features = {feature.name: feature for feature in plan.features}
    for case in cases:
        _check_names(case, features, version)
    run = _Run(rules, features)
    segment = None if version.store is None else version.store.segment
    try:
        backend = version.deployment.executors.backend
        with open_trial(version, segment, backend, runs) as trial:
            difference = next(filter(None, (run.compare(case, trial) for case in cases)), None)
    except OSError as error:
        raise Unavailable(f"golden requests: {error.strerror or error}") from None
    proven = {name for case in cases for name in case.golden.keys}
    return GoldenReport(
        files=tuple(case.name for case in cases),
        keys=run.keys,
        scores=run.scores,
        max_abs_diff=run.max_abs_diff,
        difference=difference,
        unproven=tuple(
            name for name, one in features.items() if name not in proven and _has_keys(one)
        ),
    )


class _Run:
    """Counts what is compared. For one thread."""

    def __init__(self, rules: RankingRules, features: Mapping[str, FeaturePlan]) -> None:
        self._rules = rules
        self._features = features
        self.keys = 0
        self.scores = 0
        self.max_abs_diff = 0.0

    def compare(self, case: GoldenCase, trial: GoldenTrial) -> GoldenDifference | None:
        """Return the first difference of a case: of keys in the order of features, then of scores.

        Raises:
            InvalidInput: the request is refused.
        """
        try:
            prepared = self._rules.prepare(case.request, _LIMITS)
        except AnabranchError as error:
            raise type(error)(f"{case.name}: {error.message}") from None
        if prepared.bad:
            row = min(prepared.bad)
            raise InvalidInput(f"{case.name}: candidate {row}: {prepared.bad[row]}")
        return self._compare_keys(case, prepared) or self._compare_scores(case, prepared, trial)

    def _compare_keys(self, case: GoldenCase, prepared: PreparedRanking) -> GoldenDifference | None:
        for name, feature in self._features.items():
            expected = case.golden.keys.get(name)
            if expected is None:
                continue
            found = feature_keys(self._rules.plan, feature, prepared)
            difference = different_key(case.name, name, feature.side, found, expected)
            if difference is not None:
                return difference
            self.keys += len(expected)
        return None

    def _compare_scores(
        self, case: GoldenCase, prepared: PreparedRanking, trial: GoldenTrial
    ) -> GoldenDifference | None:
        try:
            outputs, rows = trial.score(prepared.arrays, prepared.heads)
            if rows != prepared.rows:
                raise InvalidInput(f"{rows} rows of answers for {prepared.rows} candidates")
            ranked = self._rules.finish(prepared, outputs)
        except AnabranchError as error:
            raise type(error)(f"{case.name}: {error.message}") from None
        for head, expected in case.golden.scores.items():
            found = _in_order_sent(ranked.outputs[head], ranked.positions)
            difference = different_score(case.name, head, found, expected, case.golden.max_abs_diff)
            if difference is not None:
                return difference
            self.scores += len(expected)
            off = np.abs(found.astype(np.float64).reshape(-1) - np.ravel(np.asarray(expected)))
            self.max_abs_diff = max(self.max_abs_diff, float(off.max(initial=0.0)))
        return None


def _in_order_sent(
    numbers: NDArray[np.float32], positions: NDArray[np.uint32]
) -> NDArray[np.float32]:
    """Return answers in the order of candidates."""
    found = np.empty_like(numbers)
    found[positions] = numbers
    return found


def _has_keys(feature: FeaturePlan) -> bool:
    """Whether a feature becomes anything: ids and routing keys may feed nothing."""
    return bool(feature.keys or feature.values)


def _check_names(
    case: GoldenCase, features: Mapping[str, FeaturePlan], version: GoldenVersion
) -> None:
    """Check that keys are of features that have any, and scores of outputs.

    Raises:
        InvalidInput: they are not.
    """
    outputs = [spec.name for spec in version.model.outputs]
    for kind, names, known in (
        ("keys", case.golden.keys, list(features)),
        ("scores", case.golden.scores, outputs),
    ):
        for name in names:
            if name not in known:
                what = "feature" if kind == "keys" else "output"
                shown = ", ".join(map(repr, known[:20]))
                raise InvalidInput(
                    f"{case.name}: {kind}: no {what} {name!r}; expected one of {shown}"
                )
    for name in case.golden.keys:
        if not _has_keys(features[name]):
            raise InvalidInput(
                f"{case.name}: keys: feature {name!r} feeds neither the graph nor a lookup, so it "
                "has no keys; leave it out"
            )
