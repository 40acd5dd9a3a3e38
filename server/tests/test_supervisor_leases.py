from hypothesis import given
from hypothesis import strategies as st

from anabranch_server.supervisor.effects import WorkerId
from anabranch_server.supervisor.leases import Leases, Overdue

W0, W1 = WorkerId(0, 1), WorkerId(1, 1)


def _leases() -> Leases:
    """Two workers that may read epoch 1 of m, which is current since second 0."""
    leases = Leases()
    leases.publish("m", 1, 0.0)
    leases.hold(W0, "m", 1)
    leases.hold(W1, "m", 1)
    return leases


def test_the_floor_is_the_oldest_epoch_that_somebody_may_read() -> None:
    leases = _leases()
    leases.publish("m", 2, 1.0)
    leases.release(W0, "m", 2)
    assert leases.floor("m") == 1

    leases.release(W1, "m", 2)
    assert leases.floor("m") == 2


def test_who_is_prepared_for_more_keeps_its_lease() -> None:
    leases = _leases()

    leases.hold(W0, "m", 2)

    assert leases.floor("m") == 1


def test_the_floor_is_never_above_what_is_current() -> None:
    leases = Leases()
    leases.hold(W0, "m", 7)
    assert leases.floor("m") == 0

    leases.publish("m", 5, 0.0)
    assert leases.floor("m") == 5


def test_death_ends_a_lease() -> None:
    leases = _leases()
    leases.publish("m", 2, 1.0)
    leases.release(W0, "m", 2)

    leases.drop(W1)

    assert leases.floor("m") == 2


def test_a_lease_is_overdue_from_when_its_epoch_was_superseded() -> None:
    leases = _leases()
    leases.publish("m", 2, 10.0)
    leases.release(W0, "m", 2)
    leases.publish("m", 3, 30.0)

    assert list(leases.overdue(39.0, 29.5)) == []
    assert list(leases.overdue(40.0, 29.5)) == [Overdue(W1, "m", 1, 30.0)]
    assert list(leases.overdue(60.0, 29.5)) == [
        Overdue(W0, "m", 2, 30.0),
        Overdue(W1, "m", 1, 50.0),
    ]


def test_what_is_current_is_never_overdue() -> None:
    assert list(_leases().overdue(1e9, 1.0)) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["hold", "release", "drop"]), st.sampled_from([W0, W1])),
        max_size=30,
    ),
    st.data(),
)
def test_nobody_reads_below_the_floor(
    steps: list[tuple[str, WorkerId]], data: st.DataObject
) -> None:
    """Whatever happens, the floor is at most every lease, and never sinks but for a new reader."""
    leases = Leases()
    held: dict[WorkerId, int] = {}
    for current, (step, worker) in enumerate(steps, 1):
        leases.publish("m", current, float(current))
        if step == "hold" and worker not in held:
            leases.hold(worker, "m", current)
            held[worker] = current
        elif step == "release" and worker in held:
            held[worker] = data.draw(st.integers(held[worker], current))
            leases.release(worker, "m", held[worker])
        elif step == "drop":
            leases.drop(worker)
            held.pop(worker, None)
        assert leases.floor("m") == min([current, *held.values()])
