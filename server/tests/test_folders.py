import os
import stat
from pathlib import Path

import pytest

from anabranch_server.folders import (
    default_cache_dir,
    default_run_dir,
    default_state_dir,
    own_folder,
    run_dir_at,
    state_dir_for,
)
from anabranch_wire.errors import PermissionDenied, Unavailable


def test_xdg_folders_win(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}

    assert default_cache_dir(environ) == Path("/c/anabranch")
    assert default_state_dir(environ) == Path("/s/anabranch/{repository}")
    assert default_run_dir(environ) == Path("/r/anabranch/{http_port}")


def test_home_comes_next(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "relative/is/ignored"}

    assert default_cache_dir(environ) == tmp_path / ".cache/anabranch"
    assert default_state_dir(environ) == tmp_path / ".local/state/anabranch/{repository}"


def test_without_a_home_a_folder_of_the_user_is_taken() -> None:
    private = f"anabranch-{os.geteuid()}"

    assert default_cache_dir({"HOME": "/nonexistent"}).parts[-2:] == (private, "cache")
    assert default_state_dir({}).parts[-3:] == (private, "state", "{repository}")
    assert run_dir_at(default_run_dir({}), 9000).parts[-3:] == (private, "run", "9000")


def test_repositories_have_states_of_their_own() -> None:
    template = default_state_dir({"XDG_STATE_HOME": "/s"})
    paths = ("/a/models", "/b/models", "/a/other", "/", f"/a/{'m' * 255}", f"/b/{'m' * 255}")

    folders = [state_dir_for(template, Path(path)) for path in paths]

    assert len(set(folders)) == len(paths)
    assert folders[0].name.startswith("models-")
    assert max(len(folder.name) for folder in folders) < 100
    assert state_dir_for(template, Path("/a/x/../models")) == folders[0]
    assert state_dir_for(Path("/var/state"), Path("/a/models")) == Path("/var/state")


def test_own_folder_is_made_private(tmp_path: Path) -> None:
    made = own_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700

    made.chmod(0o755)
    assert stat.S_IMODE(own_folder(made).stat().st_mode) == 0o700


def test_a_folder_that_holds_something_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").touch()

    for mode in (0o755, 0o750, 0o700, 0o711):
        (tmp_path / "etc").chmod(mode)
        assert own_folder(tmp_path / "etc") == tmp_path / "etc"
        assert stat.S_IMODE((tmp_path / "etc").stat().st_mode) == mode


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o775, 0o770])
def test_a_folder_in_use_that_others_may_write_into_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "theirs").touch()
    (tmp_path / "tmp").chmod(mode)

    with pytest.raises(PermissionDenied, match=f"mode {mode:04o}.: name another one"):
        own_folder(tmp_path / "tmp")
    assert stat.S_IMODE((tmp_path / "tmp").stat().st_mode) == mode


def test_a_link_is_not_an_own_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    with pytest.raises(PermissionDenied, match="expected a folder"):
        own_folder(tmp_path / "link")


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable):
        own_folder(tmp_path / "file")
    with pytest.raises(Unavailable):
        own_folder(tmp_path / "file" / "below")


def test_a_folder_inside_somebody_elses_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "theirs").mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    os.chown(tmp_path / "theirs", 12345, 12345)

    with pytest.raises(PermissionDenied, match="theirs: expected a folder"):
        own_folder(tmp_path / "theirs" / "cache")
