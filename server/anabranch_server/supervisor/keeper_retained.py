"""Plans of versions in memory as other deltas made them: what a rollback goes back to at once."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from anabranch_server.processes.plans import VersionPlan

__all__ = ["RetainedPlans"]


class RetainedPlans:
    """Plans that were served before, by version and delta. Belongs to the keeper's task."""

    def __init__(self) -> None:
        self._published: dict[int, VersionPlan] = {}
        self._served: dict[int, dict[int, VersionPlan]] = {}

    @property
    def plans(self) -> Iterator[VersionPlan]:
        """All of them."""
        yield from self._published.values()
        for plans in self._served.values():
            yield from plans.values()

    def publish(self, plan: VersionPlan) -> None:
        """Take a version as it was published: every delta can be come to from there."""
        self._published[plan.version] = plan

    def deltas(self, version: int) -> tuple[int, ...]:
        """Return the deltas of a version that were served before, rising."""
        return tuple(sorted(self._served.get(version, {})))

    def at(self, plan: VersionPlan, delta: int) -> VersionPlan | None:
        """Return what a version was at a delta; None where that is not known any more.

        Args:
            plan: the version as it is now.
            delta: of what is looked for.
        """
        return next((one for one in self._known(plan) if one.delta == delta), None)

    def before(self, plan: VersionPlan, delta: int) -> VersionPlan | None:
        """Return the newest known one that a delta can be come to from; as `at`."""
        known = [one for one in self._known(plan) if one.delta <= delta]
        return max(known, key=lambda one: one.delta, default=None)

    def forget(self, version: int) -> None:
        """Know nothing of a version any more, as where files that it was made of have gone."""
        self._published.pop(version, None)
        self._served.pop(version, None)

    def switch(
        self,
        old: Mapping[int, VersionPlan],
        new: Mapping[int, VersionPlan],
        keep: int,
        coming: Mapping[int, VersionPlan] = MappingProxyType({}),
    ) -> None:
        """Note what workers have now instead of what they had.

        Args:
            old: versions in memory before.
            new: versions in memory now.
            keep: how many deltas of each are retained beside it.
            coming: versions that were found good and are not in memory yet.
        """
        for version, plan in old.items():
            now = new.get(version)
            served = self._served.setdefault(version, {})
            if now is not None and now.identity == plan.identity and now.delta != plan.delta:
                served.pop(plan.delta, None)
                served[plan.delta] = plan
                served.pop(now.delta, None)
        for version in [*self._served]:
            now, served = new.get(version), self._served[version]
            stale = [d for d, one in served.items() if now is None or one.identity != now.identity]
            for delta in stale:
                del served[delta]
            for delta in [*served][: max(0, len(served) - keep)]:
                del served[delta]
            if not served:
                del self._served[version]
        for version in [*self._published]:
            now = new.get(version) or coming.get(version)
            if now is None or now.identity != self._published[version].identity:
                del self._published[version]

    def _known(self, plan: VersionPlan) -> Iterator[VersionPlan]:
        published = self._published.get(plan.version)
        served = self._served.get(plan.version, {}).values()
        for known in (*served, published):
            if known is not None and known.identity == plan.identity:
                yield known
