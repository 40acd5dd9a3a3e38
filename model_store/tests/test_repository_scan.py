import logging
import os
from pathlib import Path

import pytest

from anabranch_model_store.repository import Ignored, report_ignored, scan_repository
from anabranch_wire.errors import NotFound


def make(root: Path, *paths: str) -> Path:
    for path in paths:
        if path.endswith("/"):
            (root / path).mkdir(parents=True, exist_ok=True)
        else:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(b"x")
    return root


def test_models_and_their_numbered_versions_are_found(tmp_path: Path) -> None:
    make(
        tmp_path,
        "ctr/1/model.onnx",
        "ctr/20240131/manifest.json",
        "ctr/9/model.onnx",
        "ctr/serving.yaml",
        "ctr/model.yaml",
        "two.towers-v2/",
    )
    scan = scan_repository(tmp_path)
    assert list(scan.models) == ["ctr", "two.towers-v2"]
    versions = scan.models["ctr"].versions  # type: ignore[index]
    assert list(versions) == [1, 9, 20240131]
    assert [version.published for version in versions.values()] == [False, False, True]
    assert versions[9].path == (tmp_path / "ctr" / "9").resolve()
    assert scan.ignored == frozenset()


@pytest.mark.parametrize(
    ("path", "place", "reason"),
    [
        ("README.md", "README.md", "a file"),
        ("_old/1/model.onnx", "_old", "with a letter or digit first"),
        ("a..b/1/model.onnx", "a..b", "no '..'"),
        ("ctr/01/model.onnx", "ctr/01", "without a leading 0"),
        ("ctr/v1/model.onnx", "ctr/v1", "1 to 18 digits"),
        ("ctr/1.tmp/model.onnx", "ctr/1.tmp", "1 to 18 digits"),
        ("ctr/model.onnx", "ctr/model.onnx", "lie in version folders such as 1/"),
        ("ctr/9999999999999999999/x", "ctr/9999999999999999999", "1 to 18 digits"),
        ("ctr/7", "ctr/7", "a file"),
    ],
)
def test_anything_else_is_ignored_with_a_reason(
    tmp_path: Path, path: str, place: str, reason: str
) -> None:
    scan = scan_repository(make(tmp_path, path))
    assert all(not model.versions for model in scan.models.values())
    (ignored,) = scan.ignored
    assert ignored.place == place
    assert reason in ignored.reason


def test_hidden_names_are_nothing_at_all(tmp_path: Path) -> None:
    make(tmp_path, ".git/1/x", ".x", "ctr/.publishing-1f/model.onnx", "ctr/.DS_Store", "ctr/1/")
    scan = scan_repository(tmp_path)
    assert list(scan.models["ctr"].versions) == [1]  # type: ignore[index]
    assert (len(scan.models), scan.ignored) == (1, frozenset())


def test_links_may_lead_anywhere_inside_the_repository_only(tmp_path: Path) -> None:
    root = make(tmp_path / "repository", "ctr/1/model.onnx")
    make(tmp_path, "outside/5/model.onnx")
    (root / "ctr" / "2").symlink_to("1")
    (root / "ctr" / "3").symlink_to(tmp_path / "outside" / "5")
    (root / "ctr" / "4").symlink_to("nowhere")
    (root / "other").symlink_to(tmp_path / "outside")
    (tmp_path / "link").symlink_to(root)
    for start in (root, tmp_path / "link"):
        scan = scan_repository(start)
        assert list(scan.models["ctr"].versions) == [1, 2]  # type: ignore[index]
        assert {ignored.place for ignored in scan.ignored} == {"ctr/3", "other"}


def test_only_the_named_models_are_looked_at(tmp_path: Path) -> None:
    make(tmp_path, "a/1/", "b/1/", "not a model/")
    scan = scan_repository(tmp_path, {"a", "missing"})
    assert list(scan.models) == ["a"]
    assert not scan.ignored


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_read_is_ignored_with_the_reason(tmp_path: Path) -> None:
    make(tmp_path, "a/1/", "b/1/")
    (tmp_path / "a").chmod(0)
    try:
        scan = scan_repository(tmp_path)
    finally:
        (tmp_path / "a").chmod(0o700)
    assert list(scan.models) == ["b"]
    assert {i.reason for i in scan.ignored} == {"cannot be read: Permission denied"}


def test_a_missing_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        scan_repository(tmp_path / "absent")
    with pytest.raises(NotFound):
        scan_repository(make(tmp_path, "file") / "file")


def test_what_is_ignored_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    old, new = Ignored("a", "a file"), Ignored("b\nc", "no model")
    with caplog.at_level(logging.WARNING):
        report_ignored(frozenset((old, new)), frozenset((old,)))
    assert [record.getMessage() for record in caplog.records] == ["ignored 'b\\nc': no model"]
