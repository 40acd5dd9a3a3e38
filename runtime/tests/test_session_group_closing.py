from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from anabranch_runtime.backends.ort_cpu import OrtCpuBackend
from anabranch_runtime.backends.protocol import Engine
from anabranch_runtime.cancellation import Cancellation
from anabranch_runtime.models import DenseModel
from anabranch_runtime.session_group import SessionGroup
from anabranch_runtime.settings import BatchSettings, GroupSettings
from anabranch_testing.gated import GatedBackend
from anabranch_testing.graphs import lookup_model, scale_model
from anabranch_testing.groups import Collector, Counts, MakeGroup, load_version, ticket_of
from anabranch_wire.errors import InvalidInput, Unavailable
from anabranch_wire.snapshots import Snapshot

ONE = np.ones((1, 4), np.float32)


class CountingBackend:
    """ONNX Runtime that remembers which of its engines were closed."""

    name = "counting"

    def __init__(self) -> None:
        self.built: list[Engine] = []
        self.closed: list[Engine] = []
        self._inner = OrtCpuBackend()

    def build(self, model: DenseModel, cancellation: Cancellation | None = None) -> Engine:
        engine = self._inner.build(model)
        close = engine.close

        def remember() -> None:
            self.closed.append(engine)
            close()

        engine.close = remember  # type: ignore[method-assign]  # a stand-in's
        self.built.append(engine)
        return engine


def test_what_a_stuck_executor_keeps_waiting_is_answered(
    make_group: MakeGroup, backend: GatedBackend, tmp_path: Path
) -> None:
    group = make_group()
    served = load_version(group, scale_model(tmp_path))
    sink = Collector()
    backend.hold()
    stuck, waiting = ticket_of(served, sink, ONE), ticket_of(served, sink, ONE)
    group.submit(stuck)
    assert backend.entered.acquire(timeout=10)
    group.submit(waiting)

    assert not group.close(0.01)

    assert sink.wait(1) == [waiting]
    assert isinstance(waiting.error, Unavailable)
    backend.gate.set()
    assert sink.wait(2)[1] is stuck
    assert stuck.error is None


def test_a_group_can_be_closed_twice(make_group: MakeGroup) -> None:
    group = make_group(2)

    assert group.close(10.0)
    assert group.close(10.0)


def load_zeros(group: SessionGroup, model: DenseModel, examples: Sequence[int]) -> None:
    inputs = {"ids": np.array(examples, np.int64)}
    group.load(Snapshot("m", 1), model, [inputs], warm_rounds=1)


def test_engines_are_closed_with_the_group_and_where_loading_fails(tmp_path: Path) -> None:
    backend = CountingBackend()
    group = SessionGroup("m", GroupSettings(2, BatchSettings(max_rows=4)), backend, Counts())
    model = lookup_model(tmp_path)
    load_zeros(group, model, [0])

    with pytest.raises(InvalidInput):
        load_zeros(group, model, [99])
    assert backend.closed == backend.built[1:]
    assert group.close(10.0)

    assert backend.closed == [backend.built[1], backend.built[0]]


def test_a_version_that_comes_after_the_end_is_refused_and_its_engine_closed(
    tmp_path: Path,
) -> None:
    backend = CountingBackend()
    group = SessionGroup("m", GroupSettings(2, BatchSettings(max_rows=4)), backend, Counts())
    assert group.close(10.0)

    with pytest.raises(Unavailable, match="being unloaded"):
        load_zeros(group, lookup_model(tmp_path), [0])

    assert backend.closed == backend.built
