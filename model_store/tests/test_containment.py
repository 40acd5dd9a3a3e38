from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch_model_store.containment import resolve_inside
from anabranch_wire.errors import AnabranchError, InvalidInput, NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "version"
    (inside / "tables").mkdir(parents=True)
    (inside / "tables" / "0000.bin").write_bytes(b"rows")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / "x").write_bytes(b"x")
    return inside


def test_a_file_below_the_folder_is_found(folder: Path) -> None:
    assert resolve_inside(folder, "tables/0000.bin").read_bytes() == b"rows"


@pytest.mark.parametrize(
    "relative",
    [
        "", "/", "/etc/passwd", "..", "../secret", "tables/../../secret", "./tables", "tables//x",
        "tables/", "a\\b", "a\x00b", "a\nb", "x" * 1025, "\ud800",
    ],
)  # fmt: skip
def test_a_text_that_is_no_relative_path_is_refused(folder: Path, relative: str) -> None:
    with pytest.raises(InvalidInput):
        resolve_inside(folder, relative)


def test_a_missing_file_is_not_found(folder: Path) -> None:
    with pytest.raises(NotFound, match=r"tables/0001\.bin: no such file"):
        resolve_inside(folder, "tables/0001.bin")
    with pytest.raises(NotFound):
        resolve_inside(folder, "tables/0000.bin/deeper")
    with pytest.raises(NotFound):
        resolve_inside(folder / "absent", "tables")


def test_links_may_stay_inside_but_not_leave(folder: Path) -> None:
    (folder / "stays").symlink_to("tables/0000.bin")
    (folder / "leaves").symlink_to("../secret")
    (folder / "absolute").symlink_to(folder.parent / "secret")
    (folder / "sibling").symlink_to("../version-2")  # shares a prefix with the folder's name
    assert resolve_inside(folder, "stays").name == "0000.bin"
    for relative in ("leaves", "absolute", "sibling/x"):
        with pytest.raises(InvalidInput, match="leads out of the folder"):
            resolve_inside(folder, relative)


def test_a_loop_of_links_is_refused(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    with pytest.raises(InvalidInput, match="cannot be resolved"):
        resolve_inside(folder, "a")


def test_the_folder_itself_may_be_a_link(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder)
    assert resolve_inside(link, "tables/0000.bin").is_relative_to(folder.resolve())


@given(st.text(max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_text_ever_leaves_the_folder(folder: Path, relative: str) -> None:
    try:
        found = resolve_inside(folder, relative)
    except AnabranchError:
        return
    assert found.is_relative_to(folder.resolve())
