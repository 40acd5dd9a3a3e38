from pathlib import Path

from fresh_deltas import StagedDeltas
from fresh_model import FreshModel


def test_deltas_that_are_staged_later_go_on_where_those_before_ended(tmp_path: Path) -> None:
    model = FreshModel.write(tmp_path, 1000)
    staged = StagedDeltas(model, 1, 50)
    for _ in range(2):
        staged.stage(2, dense_every=2)
        assert [staged.publish(), staged.publish()] == [staged.newest - 1, staged.newest]
    published = sorted((model.folder / "1" / "deltas").iterdir())
    assert [path.name for path in published] == ["00000001", "00000002", "00000003", "00000004"]
    assert all((path / "delta.json").is_file() for path in published)
