"""Session groups for tests: ONNX Runtime behind a gate, and everything that was counted."""

from collections.abc import Iterator

import pytest

from anabranch_testing.gated import GatedBackend
from anabranch_testing.groups import Counts, MakeGroup, open_groups


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
def backend() -> GatedBackend:
    return GatedBackend()


@pytest.fixture
def make_group(backend: GatedBackend, counts: Counts) -> Iterator[MakeGroup]:
    with open_groups(backend, counts) as make:
        yield make
        backend.gate.set()
