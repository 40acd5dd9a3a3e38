"""What versions have in common: whatever is built for one of them serves the other too.

Policy on plain values.
"""

from anabranch_server.processes.plans import GenerationPlan, VersionPlan

__all__ = ["is_same", "shares_graph"]


def shares_graph(one: VersionPlan, other: VersionPlan) -> bool:
    """Return whether both are run by the same engine; their rows and ranking may differ.

    So they are where deltas between them changed rows alone, or nothing but a step or a time.
    """
    return _graph(one) == _graph(other)


def is_same(
    one: VersionPlan, its: GenerationPlan | None, other: VersionPlan, others: GenerationPlan | None
) -> bool:
    """Return whether no answer tells one from the other.

    Args:
        one: a version.
        its: rows that it reads.
        other: another version.
        others: rows that this one reads.
    """
    return its == others and _about(one) == _about(other) and shares_graph(one, other)


def _graph(version: VersionPlan) -> tuple[object, ...]:
    """Return what an engine is built from, and how it is fed."""
    return (
        version.version,
        version.identity,
        version.path,
        version.optimized,
        version.cut,
        None if version.store is None else version.store.plan,
        version.inputs,
        version.outputs,
        version.rows,
        version.user_inputs,
        version.description,
    )


def _about(version: VersionPlan) -> tuple[object, ...]:
    """Return what else answers are made of, or tell."""
    return version.delta, version.step, version.event_time, version.ranking
