"""A server for a subject: its repository with version 1, and how much memory it may have."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anabranch_testing.servers import RunningServer, started_server
from chaos.subjects import Subject

__all__ = ["limited_to", "restarted_server", "staged_server"]


@contextmanager
def staged_server(
    subject: Subject, folder: Path, *options: str, prefix: Sequence[str] = ()
) -> Iterator[tuple[RunningServer, Path]]:
    """Serve a subject until the block ends; gives the server and its repository.

    Args:
        subject: the model; its version 1 is served first.
        folder: an empty one.
        options: more `serve` options.
        prefix: words before the command; see `limited_to`.
    """
    repository = folder / "models"
    repository.mkdir()
    subject.publish(repository / subject.model, 1)
    (repository / subject.model / "serving.yaml").write_text(
        "format: 1\nqueue: {default_timeout_ms: 20000}\n"
    )
    (folder / "server").mkdir()
    with _started(subject, folder, options, prefix) as server:
        yield server, repository


@contextmanager
def restarted_server(
    subject: Subject, folder: Path, *options: str, prefix: Sequence[str] = ()
) -> Iterator[RunningServer]:
    """Serve until the block ends what a `staged_server` of that folder served, which has ended."""
    (folder / "server" / "ready.json").unlink(missing_ok=True)
    (folder / "server" / "server.log").rename(folder / "server" / "before.log")
    with _started(subject, folder, options, prefix) as server:
        yield server


@contextmanager
def _started(
    subject: Subject, folder: Path, options: Sequence[str], prefix: Sequence[str]
) -> Iterator[RunningServer]:
    with started_server(
        folder / "models",
        folder / "server",
        *subject.options,
        *options,
        prefix=prefix,
        module=subject.module,
    ) as server:
        yield server


def limited_to(address_space_bytes: int) -> tuple[str, ...]:
    """Return the words before a command whose processes get so much address space each.

    That is RLIMIT_AS: what is reserved counts as well as what is used, and files that are mapped.
    It bounds every process alone; a bound on all of them together is a control group's to keep.
    """
    return ("prlimit", f"--as={address_space_bytes}")
