import hashlib
import os
from pathlib import Path

import pytest

from anabranch_model_store.hashing import file_sha256, folder_identity
from anabranch_model_store.version_files import verify_version
from anabranch_wire.document_fields import ListedFile
from anabranch_wire.errors import Corrupt, InvalidInput, NotFound, Unsupported
from anabranch_wire.manifest import Manifest, encode, identity
from anabranch_wire.snapshots import Snapshot

SNAPSHOT = Snapshot("ctr", 42)
FILES = {"model.onnx": b"graph" * 400_000, "warmup/a.npz": b"zip", "warmup/b.json": b"{}"}


def write(folder: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def publish(folder: Path, *, version: int = 42, model: str = "ctr") -> bytes:
    data = encode(
        Manifest(
            format=1,
            kind="version",
            model=model,
            version=version,
            producer="test",
            created=1.0,
            model_file="model.onnx",
            files=tuple(
                ListedFile(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
                for path, data in FILES.items()
            ),
        )
    )
    (folder / "manifest.json").write_bytes(data)
    return data


def test_a_published_version_is_what_its_manifest_names(tmp_path: Path) -> None:
    data = publish(write(tmp_path))
    write(tmp_path, {"notes.txt": b"later", "deltas/00000001/delta.json": b"{}"})
    files = verify_version(tmp_path, SNAPSHOT)
    assert files.manifest is not None
    assert files.identity == identity(data)
    assert dict(files.bytes) == {path: len(data) for path, data in FILES.items()}
    assert files.unlisted == ("notes.txt",)
    assert "warmup/a.npz" in files
    assert files.path("warmup/a.npz").read_bytes() == b"zip"
    with pytest.raises(NotFound, match=r"it is not listed in manifest\.json"):
        files.path("notes.txt")
    with pytest.raises(NotFound, match=r"no such file in the version$"):
        files.path("../ctr/model.onnx")


def test_files_are_found_by_folder_and_ending(tmp_path: Path) -> None:
    files = verify_version(write(tmp_path), SNAPSHOT)
    assert files.below("warmup", ".npz") == ("warmup/a.npz",)
    assert files.below("warmup", ".npz", ".json") == ("warmup/a.npz", "warmup/b.json")
    assert files.below("", ".onnx") == ("model.onnx",)
    assert files.below("golden", ".json") == ()


def test_a_missing_file_is_corrupt(tmp_path: Path) -> None:
    publish(write(tmp_path))
    (tmp_path / "warmup" / "a.npz").unlink()
    with pytest.raises(Corrupt, match=r"warmup/a\.npz: missing; .* with 3 bytes"):
        verify_version(tmp_path, SNAPSHOT)


def test_a_truncated_file_is_corrupt(tmp_path: Path) -> None:
    publish(write(tmp_path))
    os.truncate(tmp_path / "model.onnx", 1_999_999)
    with pytest.raises(Corrupt, match=r"model\.onnx: expected 2000000 bytes, found 1999999"):
        verify_version(tmp_path, SNAPSHOT)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    publish(write(tmp_path))
    flipped = bytearray(FILES["model.onnx"])
    flipped[-1] ^= 1
    (tmp_path / "model.onnx").write_bytes(flipped)
    with pytest.raises(Corrupt, match=r"model\.onnx: expected sha256 [0-9a-f]{64}, found [0-9a-f]"):
        verify_version(tmp_path, SNAPSHOT)


def test_a_listed_file_may_not_lead_out_of_the_version(tmp_path: Path) -> None:
    folder = write(tmp_path / "42")
    publish(folder)
    (folder / "warmup" / "a.npz").unlink()
    (tmp_path / "secret").write_bytes(b"zip")
    (folder / "warmup" / "a.npz").symlink_to("../../secret")
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        verify_version(folder, SNAPSHOT)


@pytest.mark.parametrize(("version", "model"), [(41, "ctr"), (42, "other")])
def test_a_manifest_of_another_version_is_refused(tmp_path: Path, version: int, model: str) -> None:
    publish(write(tmp_path), version=version, model=model)
    with pytest.raises(InvalidInput, match="but lies in ctr/42"):
        verify_version(tmp_path, SNAPSHOT)


def test_a_manifest_that_is_none_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"manifest.json": b"{"})
    with pytest.raises(InvalidInput, match=r"manifest\.json: not JSON"):
        verify_version(tmp_path, SNAPSHOT)
    write(tmp_path, {"manifest.json": b'{"format": 2}'})
    with pytest.raises(Unsupported, match="format 2 is newer"):
        verify_version(tmp_path, SNAPSHOT)


def test_a_meaning_cannot_be_added_to_a_published_version(tmp_path: Path) -> None:
    publish(write(tmp_path))
    write(tmp_path, {"model.yaml": b"row_independent: false"})
    with pytest.raises(InvalidInput, match=r"model\.yaml lies in the version, but"):
        verify_version(tmp_path, SNAPSHOT)


def test_without_a_manifest_the_identity_is_that_of_paths_and_contents(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    files = verify_version(folder, SNAPSHOT)
    assert files.manifest is None
    expected = hashlib.sha256(
        b"".join(
            path.encode() + b"\0" + hashlib.sha256(data).hexdigest().encode() + b"\n"
            for path, data in sorted(FILES.items())
        )
    )
    assert files.identity == f"sha256:{expected.hexdigest()}"
    write(folder, {"deltas/00000001/delta.json": b"{}"})
    assert verify_version(folder, SNAPSHOT).identity == files.identity
    assert verify_version(write(tmp_path / "b"), SNAPSHOT).identity == files.identity
    renamed = write(
        tmp_path / "c", {"model2.onnx" if p == "model.onnx" else p: d for p, d in FILES.items()}
    )
    assert verify_version(renamed, SNAPSHOT).identity != files.identity


def test_the_order_of_paths_is_that_of_their_bytes() -> None:
    digests = {"b": "1", "ä": "2", "a/b": "3", "a.b": "4"}
    text = b"a.b\x004\na/b\x003\nb\x001\n\xc3\xa4\x002\n"
    assert folder_identity(digests) == f"sha256:{hashlib.sha256(text).hexdigest()}"


def test_files_larger_than_a_block_are_hashed_whole(tmp_path: Path) -> None:
    data = os.urandom(3 * (1 << 20) + 17)
    (tmp_path / "f").write_bytes(data)
    assert file_sha256(tmp_path / "f") == hashlib.sha256(data).hexdigest()
