"""What a scrape shows of the tables of a model."""

from collections.abc import Iterator, Sequence

from anabranch_server.metrics import Value
from anabranch_server.processes.plans import GenerationPlan, StatePlan
from anabranch_server.supervisor.version_store import VersionStore

__all__ = ["store_values"]


def store_values(
    model: str,
    state: StatePlan,
    stores: Sequence[tuple[GenerationPlan, VersionStore]],
    leases: tuple[int, float],
) -> Iterator[Value]:
    """Yield the values of a model that has tables.

    Args:
        model: its name.
        state: what it serves.
        stores: of its versions, with the generations that they read.
        leases: workers that may read it, and for how long one kept what had passed.
    """
    at = (model,)
    memory = {"base": 0, "index": 0, "arena": 0, "undo": 0}
    retired = 0
    for generation, store in stores:
        figures = store.figures
        memory["base"] += store.plan.segment_bytes
        memory["index"] += figures.memory.index
        memory["arena"] += figures.memory.arena
        memory["undo"] += figures.memory.undo
        retired += sum(table.retired_rows for table in figures.tables)
        if generation.version != state.default:
            continue
        for table, stats in zip(store.tables, figures.tables, strict=True):
            yield Value("anabranch_store_rows", (model, table.name), stats.live_keys)
        used = max((one.arena_used / one.arena_rows for one in figures.tables), default=0.0)
        yield Value("anabranch_store_arena_used_ratio", at, used)
        yield Value("anabranch_store_huge_page_ratio", at, figures.huge_pages)
    for part, size in memory.items():
        yield Value("anabranch_store_bytes", (model, part), size)
    yield Value("anabranch_store_retired_rows", at, retired)
    yield Value("anabranch_store_leases", at, leases[0])
    yield Value("anabranch_store_oldest_lease_seconds", at, leases[1])
