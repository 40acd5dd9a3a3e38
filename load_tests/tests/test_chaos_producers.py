"""A trainer that is killed and started again: what it was told is published is in its journal."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch_publish import Publisher
from anabranch_testing.server_processes import wait_until
from chaos import DELTAS, Producer

PATIENCE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    repository = tmp_path / "models"
    repository.mkdir()
    DELTAS.publish(repository / DELTAS.model, 1)
    return repository / DELTAS.model


@pytest.fixture
def producer(folder: Path, tmp_path: Path) -> Iterator[Producer]:
    producer = Producer(folder, tmp_path, seed=3)
    yield producer
    producer.close()


def newest(folder: Path, version: int) -> int:
    with Publisher(folder, version) as publisher:
        found = publisher.newest()
    return 0 if found is None else found.sequence


@pytest.mark.slow
def test_what_is_acknowledged_is_there_and_what_comes_next_leads_past_all_before(
    folder: Path, producer: Producer
) -> None:
    producer.start()
    wait_until(lambda: producer.published().kinds.total() > 3, PATIENCE_S, "some are published")
    producer.kill()
    acknowledged = producer.published()
    producer.start()

    published = producer.finish()

    assert acknowledged.delta <= newest(folder, 1)
    assert (published.version, published.delta) == (1, newest(folder, 1))
    assert published.delta > acknowledged.delta
    assert published.kinds["good"] > acknowledged.kinds["good"]


def test_it_goes_on_where_one_was_killed_amid_garbage_and_strays(
    folder: Path, producer: Producer
) -> None:
    for name, document in (("00000001", b"\0garbage"), ("00000006", None), ("stray", None)):
        left = folder / "1" / "deltas" / name
        left.mkdir(parents=True)
        (left / "0000.safetensors").write_bytes(b"left")
        if document is not None:
            (left / "delta.json").write_bytes(document)

    producer.start()

    assert producer.finish().delta >= 1


def test_a_trainer_that_ended_by_itself_is_told_of(folder: Path, tmp_path: Path) -> None:
    producer = Producer(folder, tmp_path, seed=3)

    with pytest.raises(RuntimeError, match="ended"):
        producer.kill()


def test_half_a_line_of_a_journal_is_not_acknowledged(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("good 1 1\nflipped 1 2\ngood 1 3\ngood 1 ")

    published = Producer(folder, tmp_path, seed=3).published()

    assert (published.version, published.delta) == (1, 3)
    assert published.kinds == {"good": 2, "flipped": 1}
