"""Documents of deltas, published by hand: what a publisher writes last."""

from pathlib import Path

from anabranch_wire.delta import Base, Delta, encode

__all__ = ["write_delta"]


def write_delta(
    version: Path,
    sequence: int,
    *,
    replaces_from: int | None = None,
    created: float = 100.0,
    step: int | None = None,
    event_time: float | None = None,
    extra: dict[str, object] | None = None,
) -> Path:
    """Write the `delta.json` of a delta without files; returns its path.

    Args:
        version: the version folder; its name and that of the folder above are those of version and
            model.
        sequence: number of the delta.
        replaces_from: it holds everything since; its own number where it is None.
        created: when.
        step: training step.
        event_time: newest event.
        extra: whatever else.
    """
    folder = version / "deltas" / f"{sequence:08}"
    folder.mkdir(parents=True, exist_ok=True)
    delta = Delta(
        format=1,
        kind="delta",
        model=version.parent.name,
        version=int(version.name),
        sequence=sequence,
        replaces_from=sequence if replaces_from is None else replaces_from,
        base=Base(identity=f"sha256:{'0' * 64}", previous=0),
        attempt="0" * 16,
        producer="test",
        created=created,
        step=step,
        event_time=event_time,
        files=(),
        extra=extra or {},
    )
    path = folder / "delta.json"
    beside = folder / ".delta.json"
    beside.write_bytes(encode(delta))
    beside.replace(path)
    return path
