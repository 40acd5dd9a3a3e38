"""Room for versions whose tables leave the graph: they lie in memory once, what is left per worker.

Files of these versions have some 200 bytes, two workers would hold 400 of a whole one.
"""

import json
from pathlib import Path

import pytest

from anabranch_server.administration import ActionRequest
from anabranch_testing.event_loops import on_loop
from anabranch_testing.keepers import kept_server, write_version

ROWS = "x" * 180


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def size_of(**told: object) -> int:
    return len(json.dumps(told))


@on_loop
async def test_a_version_that_fits_without_its_tables_is_served(root: Path, state: Path) -> None:
    told = {"rows": ROWS, "dense": 10, "tables": 190}
    write_version(root / "m", 1, **told)
    whole = size_of(**told)
    assert 2 * 10 + 190 < whole + 30 < 2 * whole

    async with kept_server(root, state, available_bytes=whole + 30) as server:
        assert server.served() == ((1,), 1)
        assert server.named_loader.last is not None
        assert server.named_loader.last.available_bytes == whole + 30


@on_loop
async def test_what_is_left_counts_for_every_worker(root: Path, state: Path) -> None:
    told = {"rows": ROWS, "dense": 100, "tables": 120}
    write_version(root / "m", 1, **told)
    available = 2 * 100 + 120

    async with kept_server(root, state, available_bytes=available - 1) as server:
        assert server.served() == ((), None)
        error = server.admin.model("m").last_error
        assert error is not None
        assert "needs 100 bytes in each of 2 workers and 120 for its tables" in error.error
        server.available_bytes = available
        operation = await server.admin.act("reload", "m", ActionRequest(force=True))
        assert (operation.state, server.served()) == ("DONE", ((1,), 1))


@on_loop
async def test_a_version_that_stays_whole_is_refused_as_ever(root: Path, state: Path) -> None:
    write_version(root / "m", 1, rows=ROWS)
    whole = size_of(rows=ROWS)

    async with kept_server(root, state, available_bytes=whole + 30) as server:
        assert server.served() == ((), None)
        error = server.admin.model("m").last_error
        assert error is not None
        assert f"needs {whole} bytes in each of 2 workers" in error.error


@on_loop
async def test_a_version_that_does_not_fit_even_once_is_not_looked_at(
    root: Path, state: Path
) -> None:
    write_version(root / "m", 1, rows=ROWS, dense=1, tables=2)

    async with kept_server(root, state, available_bytes=100) as server:
        assert server.served() == ((), None)
        assert server.named_loader.requests == []


@on_loop
async def test_what_a_model_may_take_counts_what_is_left_of_it(root: Path, state: Path) -> None:
    told = {"rows": ROWS, "dense": 10, "tables": 190}
    write_version(root / "m", 1, **told)
    limit = size_of(**told) + 10
    (root / "m" / "serving.yaml").write_text(f"memory: {{max_bytes: {limit}}}\n")

    async with kept_server(root, state) as server:
        assert server.served() == ((1,), 1)
        (root / "m" / "serving.yaml").write_text("memory: {max_bytes: 209}\n")
        write_version(root / "m", 2, **told)
        await server.look()
        assert server.served() == ((1,), 1)
