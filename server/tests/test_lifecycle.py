import pytest

from anabranch_runtime.catalog import ServingState
from anabranch_server.lifecycle import Lifecycle, Phase
from anabranch_testing.catalogs import OwnCatalog
from anabranch_wire.errors import Unavailable


def _serving(*, allow_empty: bool = False) -> tuple[Lifecycle, OwnCatalog]:
    catalog = OwnCatalog()
    lifecycle = Lifecycle(catalog, allow_empty=allow_empty)
    lifecycle.advance(Phase.SERVING)
    return lifecycle, catalog


def test_a_required_model_without_a_version_is_named() -> None:
    lifecycle, catalog = _serving()
    catalog.publish("ctr", ServingState({}))

    with pytest.raises(Unavailable, match=r"ctr \(no version is loaded\)"):
        lifecycle.check_ready()


def test_what_stays_ready_is_turned_off_by_draining_alone() -> None:
    lifecycle, catalog = _serving(allow_empty=True)
    lifecycle.check_ready()

    lifecycle.stay_ready()
    catalog.publish("new", ServingState({}))
    lifecycle.check_ready()

    lifecycle.advance(Phase.DRAINING)
    with pytest.raises(Unavailable, match="draining"):
        lifecycle.check_ready()


def test_phases_never_go_back() -> None:
    lifecycle, _ = _serving()

    lifecycle.advance(Phase.STARTING)

    assert lifecycle.phase is Phase.SERVING
