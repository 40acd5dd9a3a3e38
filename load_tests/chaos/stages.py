"""A server for a subject: its repository with version 1, and how much memory it may have."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from anabranch_testing.servers import RunningServer, started_server
from chaos.subjects import Subject

__all__ = ["limited_to", "staged_server"]


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
    with started_server(
        repository,
        folder / "server",
        *subject.options,
        *options,
        prefix=prefix,
        module=subject.module,
    ) as server:
        yield server, repository


def limited_to(address_space_bytes: int) -> tuple[str, ...]:
    """Return the words before a command whose processes get so much address space each.

    That is RLIMIT_AS: what is reserved counts as well as what is used, and files that are mapped.
    It bounds every process alone; a bound on all of them together is a control group's to keep.
    """
    return ("prlimit", f"--as={address_space_bytes}")
