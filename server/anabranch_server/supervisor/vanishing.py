"""When the series of versions and models that are no longer served vanish from scrapes.

Not at once: whoever scrapes every few seconds must see the last values.
"""

from collections.abc import Collection
from typing import Final

from anabranch_runtime.counters import Series
from anabranch_server.metrics.names import UNKNOWN_MODEL

__all__ = ["Vanishing"]

_AFTER_S: Final = 300.0

_FORGET: Final = 3
"""How many times as late a version is forgotten: workers have dropped its series long before."""

_Owner = tuple[str, str]
"""Model, and version; an empty version is the model itself."""


class Vanishing:
    """Remembers what was unloaded, and when. Times are of one clock, given by the caller."""

    def __init__(self, after_s: float = _AFTER_S) -> None:
        self._after_s = after_s
        self._loaded: dict[str, frozenset[str]] = {}
        self._gone_s: dict[_Owner, float] = {}

    def __len__(self) -> int:
        """Number of versions and models that are remembered as gone."""
        return len(self._gone_s)

    def loaded(self, model: str, versions: Collection[int] | None, now_s: float) -> None:
        """Note which versions of a model are in memory from now on; None when it is gone."""
        self._forget(now_s)
        before = self._loaded.get(model, frozenset())
        now = frozenset(map(str, versions or ()))
        for version in before - now:
            self._gone_s[model, version] = now_s
        if versions is not None:
            self._loaded[model] = now
            self._gone_s.pop((model, ""), None)
        elif self._loaded.pop(model, None) is not None:
            self._gone_s[model, ""] = now_s

    def is_over(self, series: Series, now_s: float) -> bool:
        """Whether a series is not to be shown any more."""
        labels = dict(series.labels)
        model = labels.get("model")
        if model is None or model == UNKNOWN_MODEL:
            return False
        return self._is_over(model, "", now_s) or (
            "version" in labels and self._is_over(model, labels["version"], now_s)
        )

    def _forget(self, now_s: float) -> None:
        """Forget versions whose series nobody has any more, or there would be ever more of them."""
        for owner, gone_s in list(self._gone_s.items()):
            if owner[1] and now_s - gone_s >= _FORGET * self._after_s:
                del self._gone_s[owner]

    def _is_over(self, model: str, version: str, now_s: float) -> bool:
        loaded = self._loaded.get(model)
        if loaded is not None and (not version or version in loaded):
            return False
        # What was unloaded before anybody took note begins its time when it is first seen.
        gone_s = self._gone_s.setdefault((model, version), now_s)
        return now_s - gone_s >= self._after_s
