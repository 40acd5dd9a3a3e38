"""What a mirror makes of a store that refuses something, of deltas published anew, and of a cache
folder that loses something: what is served goes on, with few requests.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch_model_store.deltas.delta_folders import read_delta
from anabranch_model_store.deltas.faults import DeltaCorrupt
from anabranch_model_store.repository import scan_repository
from anabranch_model_store.sources.comparisons import Comparisons, Turn
from anabranch_model_store.sources.mirrors import Mirror
from anabranch_model_store.sources.remote_folders import Entry, RemoteFolder
from anabranch_model_store.yaml_files import read_deployment
from anabranch_testing.published_deltas import write_delta
from anabranch_wire.errors import AnabranchError, InvalidInput, Unavailable


class Folder(RemoteFolder):
    """A folder as a store that refuses some of what is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"file://{path}", {})
        self.path = path
        self.asked: list[str] = []
        self.refused: set[str] = set()
        self.on_request: Callable[[], None] = lambda: None

    def names(self, path: str) -> dict[str, Entry]:
        self._ask(path or "list")
        return super().names(path)

    def read(self, path: str, max_bytes: int) -> bytes | None:
        self._ask(path)
        return super().read(path, max_bytes)

    def put(self, path: str, data: bytes = b'{"format": 1}\n') -> None:
        (self.path / path).parent.mkdir(parents=True, exist_ok=True)
        (self.path / path).write_bytes(data)

    def put_deltas(self, *numbers: int, place: str = "ctr/1", step: int | None = None) -> None:
        for number in numbers:
            write_delta(self.path / place, number, step=step)

    def deltas_asked(self) -> list[int]:
        """Numbers of the deltas that were asked for since the last time."""
        asked, self.asked = self.asked, []
        return sorted(int(one.split("/")[-2]) for one in asked if one.endswith("/delta.json"))

    def _ask(self, path: str) -> None:
        self.on_request()
        self.asked.append(path)
        if path in self.refused:
            raise Unavailable(f"{path}: AccessDenied")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "store").mkdir()
    return Folder(tmp_path / "store")


def delta_path(number: int, place: str = "ctr/1") -> str:
    return f"{place}/deltas/{number:08}/delta.json"


def numbers(root: Path, place: str = "ctr/1") -> list[int]:
    return sorted(int(path.parent.name) for path in (root / place).glob("deltas/*/delta.json"))


# --- a cache folder that loses something ----------------------------------------------------------


@pytest.mark.parametrize("gone", [".", "*", "ctr", "ctr/2", "ctr/1"])
def test_whoever_scans_never_sees_a_part_of_what_is_filled_again(
    folder: Folder, tmp_path: Path, gone: str
) -> None:
    root = tmp_path / "mirror"
    for place in ("ctr/1", "ctr/2", "cvr/1", "cvr/2", "rank/1"):
        folder.put(f"{place}/manifest.json")
        folder.put_deltas(1, 2, place=place)
    folder.put("ctr/serving.yaml", b"versions: all\n")
    mirrored = Mirror(folder, root)
    mirrored.look()
    complete = scanned(root)
    assert complete
    found = []
    folder.on_request = lambda: found.append(scanned(root))

    remove(root, gone)
    assert mirrored.look()

    assert {None} == set(found)  # there is no repository: what is served stays
    assert scanned(root) == complete
    assert numbers(root, "ctr/2") == [1, 2]
    assert not mirrored.look()
    assert not list(tmp_path.glob(".making-*"))


def scanned(root: Path) -> str | None:
    """What a scan sees; None where there is no repository."""
    try:
        models = scan_repository(root).models
    except AnabranchError:
        return None
    told = [(name, sorted(one.versions), read_deployment(one.path)) for name, one in models.items()]
    return str(told)


def remove(root: Path, gone: str) -> None:
    for path in list(root.glob("*")) if gone == "*" else [root / gone]:
        shutil.rmtree(path)


def test_a_model_that_is_new_comes_with_its_settings(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mirror"
    folder.put("ctr/1/manifest.json")
    mirrored = Mirror(folder, root)
    mirrored.look()
    before = scanned(root)
    folder.put("cvr/serving.yaml", b"versions: all\n")
    found = []
    write = Path.write_bytes

    def scan_and_write(path: Path, data: bytes) -> int:
        found.append(scanned(root))
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", scan_and_write)
    assert mirrored.look()
    assert found == [before]
    assert scan_repository(root).models.keys() == {"ctr", "cvr"}


def test_a_skeleton_is_not_there_before_it_is_whole(folder: Folder, tmp_path: Path) -> None:
    root = tmp_path / "mirror"
    for place in ("ctr/1", "cvr/1"):
        folder.put(f"{place}/manifest.json")
    first = Mirror(folder, root)
    folder.refused = {"list"}
    with pytest.raises(Unavailable):
        first.look()
    second = Mirror(folder, root)
    with pytest.raises(Unavailable, match="another server is filling it"):
        second.look()
    assert not root.exists()
    assert not first.holds_models

    first.close()  # as if it had died
    folder.refused = set()
    assert second.look()
    assert second.holds_models
    assert first.look()
    assert scan_repository(root).models.keys() == {"ctr", "cvr"}


def test_what_was_lost_stays_away_while_the_store_is_down(folder: Folder, tmp_path: Path) -> None:
    root = tmp_path / "mirror"
    for version in range(1, 8):
        folder.put(f"ctr/{version}/manifest.json")
    mirrored = Mirror(folder, root)
    while mirrored.look():
        pass
    complete = scanned(root)
    remove(root, "*")
    folder.refused = {"list"}
    with pytest.raises(Unavailable):
        mirrored.look()
    assert scanned(root) is None
    folder.refused = {"ctr"}
    with pytest.raises(Unavailable):
        mirrored.look()
    assert scanned(root) is None

    folder.refused = set()
    assert mirrored.look()
    assert scanned(root) == complete  # more versions than a look takes otherwise


def test_deltas_that_the_cache_folder_lost_come_back(folder: Folder, tmp_path: Path) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(*range(1, 100))
    clock = Clock()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    shutil.rmtree(tmp_path / "mirror" / "ctr" / "1" / "deltas")
    clock.now_s += 60.0
    mirrored.look()
    assert numbers(tmp_path / "mirror") == list(range(1, 100))


# --- something that is refused --------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["ctr/1/manifest.json", "ctr/1/deltas"])
def test_a_listing_that_cannot_be_done_holds_no_delta_back(
    folder: Folder, tmp_path: Path, refused: str
) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(1)
    clock = Clock()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    clock.now_s += 60.0
    folder.refused = {refused}
    folder.put_deltas(2)

    assert mirrored.look()
    folder.put_deltas(3)
    folder.asked.clear()
    assert mirrored.look()

    assert numbers(tmp_path / "mirror") == [1, 2, 3]
    assert refused not in folder.asked
    clock.now_s += 60.0
    mirrored.look()
    assert refused in folder.asked


def test_a_version_published_anew_that_cannot_be_read_gets_no_deltas_of_the_new_one(
    folder: Folder, tmp_path: Path
) -> None:
    folder.put("ctr/1/manifest.json")
    clock = Clock()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    clock.now_s += 60.0
    folder.put("ctr/1/manifest.json", b'{"format": 1, "step": 2}')
    folder.put_deltas(1)
    folder.refused = {"ctr/1/deltas"}
    assert not mirrored.look()
    assert not mirrored.look()
    assert numbers(tmp_path / "mirror") == []
    folder.refused = set()
    assert mirrored.look()
    assert numbers(tmp_path / "mirror") == [1]


def test_a_store_whose_one_document_is_refused_is_there(folder: Folder, tmp_path: Path) -> None:
    folder.put("ctr/1/manifest.json")
    mirrored = Mirror(folder, tmp_path / "mirror")
    mirrored.look()
    folder.put_deltas(1)
    folder.refused = {delta_path(1)}
    assert not mirrored.look()
    folder.put("ctr/serving.yaml", b"versions: all\n")
    assert mirrored.look()

    folder.put("ctr/2/manifest.json")
    folder.put("ctr/serving.yaml", b"versions: all\n# another\n")
    folder.refused |= {"ctr/2/manifest.json", "ctr/serving.yaml"}
    with pytest.raises(Unavailable, match="AccessDenied"):
        mirrored.look()


def test_deltas_that_are_refused_are_asked_for_in_turn(folder: Folder, tmp_path: Path) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(*range(1, 12))
    folder.refused = {delta_path(number) for number in range(1, 11)}
    mirrored = Mirror(folder, tmp_path / "mirror")
    mirrored.look()
    folder.asked.clear()

    asked = []
    for _ in range(3):
        mirrored.look()
        asked.append(folder.deltas_asked())

    assert asked == [[5, 6, 7, 8, 12], [1, 2, 9, 10, 12], [3, 4, 5, 6, 12]]


def test_deltas_that_are_refused_are_not_forgotten_while_the_store_is_down(
    folder: Folder, tmp_path: Path
) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(1, 2)
    folder.refused = {delta_path(1)}
    mirrored = Mirror(folder, tmp_path / "mirror")
    mirrored.look()

    def goes_down() -> None:
        if folder.asked[-1:] == ["ctr"]:  # the models were listed before
            folder.refused.add("list")

    folder.on_request = goes_down
    with pytest.raises(Unavailable):
        mirrored.look()
    folder.on_request = lambda: None
    folder.refused = set()
    assert mirrored.look()
    assert numbers(tmp_path / "mirror") == [1, 2]


@pytest.mark.parametrize("sent", [None, b"form"])
def test_settings_that_keep_a_new_model_back_are_said_once(
    folder: Folder,
    tmp_path: Path,
    sent: bytes | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put("ctr/serving.yaml", b"versions: all\n")
    mirrored = Mirror(folder, tmp_path / "mirror")
    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(folder, "read", lambda path, max_bytes: sent)
        for _ in range(3):
            mirrored.look()
        assert [(one.__dict__["event"], one.__dict__["model"]) for one in caplog.records] == [
            ("repository_unreadable", "ctr")
        ]
        assert "listed with 14 bytes" in caplog.text
        assert mirrored.faults.keys() == {"ctr/serving.yaml"}
    assert mirrored.look()
    assert not mirrored.faults


# --- documents that are too long ------------------------------------------------------------------


def test_a_document_that_is_too_long_is_mirrored_as_a_few_bytes_that_say_so(
    folder: Folder, tmp_path: Path
) -> None:
    root = tmp_path / "mirror"
    folder.put("ctr/1/manifest.json")
    folder.put(delta_path(1), b" " * (16 * 1024 * 1024 + 1))
    folder.put("ctr/serving.yaml", b"#" * (1024 * 1024 + 1))
    Mirror(folder, root).look()
    assert (root / delta_path(1)).stat().st_size < 100
    with pytest.raises(DeltaCorrupt, match="more than 16777216 bytes"):
        read_delta(root / "ctr" / "1", 1)
    with pytest.raises(InvalidInput, match="more than 1048576 bytes"):
        read_deployment(root / "ctr")


# --- deltas that are published anew ---------------------------------------------------------------


def test_a_whole_listing_asks_for_a_handful_of_deltas(folder: Folder, tmp_path: Path) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(*range(1, 101))
    (folder.path / "ctr/1/deltas/00000101").mkdir()  # of a publisher that died
    clock = Clock()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    folder.asked.clear()

    asked = []
    for _ in range(20):
        clock.now_s += 60.0
        mirrored.look()
        asked.append(folder.deltas_asked())
        mirrored.look()
        assert folder.deltas_asked() == [101]

    assert {len(one) for one in asked[1:]} == {12}
    assert set(range(38, 102)) <= {number for one in asked[1:12] for number in one}
    mirrored.close()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    assert set(range(37, 101)) <= set(folder.deltas_asked())  # of a server that starts


@pytest.mark.parametrize(("number", "within"), [(100, 1), (97, 1), (40, 12), (1, 20)])
@pytest.mark.parametrize("restarts", [False, True])
def test_deltas_that_are_published_anew_under_their_numbers_are_seen(
    folder: Folder, tmp_path: Path, restarts: bool, number: int, within: int
) -> None:
    folder.put("ctr/1/manifest.json")
    folder.put_deltas(*range(1, 101))
    clock = Clock()
    mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
    mirrored.look()
    folder.put_deltas(number, step=7)
    if restarts:
        mirrored.close()
        mirrored = Mirror(folder, tmp_path / "mirror", now_s=clock)
        within = 1

    changed = []
    for _ in range(within):
        clock.now_s += 60.0
        changed.append(mirrored.look())

    assert sum(changed) == 1
    found = read_delta(tmp_path / "mirror" / "ctr" / "1", number)
    assert found is not None
    assert found.step == 7


def test_each_has_its_turn() -> None:
    turn = Turn()
    assert [turn.take([2, 3, 5, 8, 9], 2) for _ in range(4)] == [[2, 3], [5, 8], [2, 9], [3, 5]]
    assert turn.take([], 2) == []
    assert turn.take([7], 2) == [7]


def test_the_newest_are_compared_always_and_others_in_turn() -> None:
    compared = Comparisons(is_start=True)
    held = range(1, 201)
    assert compared.choose(held) == [1, 2, *range(137, 201)]
    assert compared.choose(held) == [3, 4, *range(137, 143), *range(197, 201)]
    assert compared.choose(held) == [5, 6, *range(143, 149), *range(197, 201)]
    assert compared.choose(range(1, 4)) == [1, 2, 3]
