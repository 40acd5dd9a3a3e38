"""Which versions of a model are loaded, and which of them answers by default; plain functions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from anabranch_model_store.serving_yaml import VersionPolicy

__all__ = ["Selection", "default_version", "select_versions"]


@dataclass(frozen=True, slots=True)
class Selection:
    """What the policy says about the versions that are there.

    Attributes:
        load: versions to serve, newest first.
        missing: versions that the policy or a label names and that are not there, ascending.
    """

    load: tuple[int, ...]
    missing: tuple[int, ...]


def select_versions(
    available: Collection[int],
    policy: VersionPolicy | Literal["all"],
    labels: Mapping[str, int],
) -> Selection:
    """Return which of `available` are to be served.

    A label is a wish to serve its version, so labelled versions come on top of the policy's.

    Args:
        available: versions that could be served. A caller leaves out those that proved broken, and
            `latest` then falls back to older ones.
        policy: `versions` of serving.yaml.
        labels: label -> version.
    """
    named: set[int] = set(labels.values())
    if isinstance(policy, str):
        wanted = named.union(available)
    elif policy.specific is not None:
        wanted = named = named.union(policy.specific)
    else:
        wanted = named.union(sorted(available, reverse=True)[: policy.latest])
    return Selection(
        tuple(sorted(wanted.intersection(available), reverse=True)),
        tuple(sorted(named.difference(available))),
    )


def default_version(
    loaded: Collection[int], labels: Mapping[str, int], default_label: str | None
) -> int | None:
    """Return the version that answers requests naming none; None where there is none.

    Args:
        loaded: versions that can answer.
        labels: label -> version, loaded or not.
        default_label: `traffic.default` of serving.yaml; None is the newest loaded version.
    """
    if default_label is None:
        return max(loaded, default=None)
    version = labels.get(default_label)
    return version if version in loaded else None
