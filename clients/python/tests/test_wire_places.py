"""Places as people name them: which are URLs, and which lie on this machine."""

from pathlib import Path

import pytest

from anabranch_wire.places import is_url, local_path


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("models/ctr", "models/ctr"),
        ("/models/a b%20c", "/models/a b%20c"),
        ("C:/models", "C:/models"),
        (Path("/models/ctr"), "/models/ctr"),
        ("file:///models/ctr", "/models/ctr"),
        ("file:///models/a%20b", "/models/a b"),
    ],
)
def test_paths_and_urls_of_files_lie_on_this_machine(place: str | Path, path: str) -> None:
    assert local_path(place) == Path(path)


@pytest.mark.parametrize("place", ["s3://bucket/ctr", "memory://x/file://y", "files://x"])
def test_other_urls_lead_elsewhere(place: str) -> None:
    assert is_url(place)
    assert local_path(place) is None


def test_urls_of_files_are_urls_and_paths_are_not() -> None:
    assert is_url("file:///models")
    assert not is_url("/models:/ctr")
