import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_server.supervisor.holds import Hold, ModelRecord, Records, ServedRecord
from anabranch_wire.errors import Unavailable

RECORD = ModelRecord(
    model="ctr",
    hold=Hold(42, 3),
    labels={"stable": 42, "canary": 43},
    launch="ab12",
    epoch=17,
    committed=1764417600.25,
    versions=(ServedRecord(42, 0, "sha256:9f", "1a"), ServedRecord(43, 0, "sha256:01", "2b")),
    history=(43,),
    loads=(40,),
    unloads=(41,),
)


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    records = Records(tmp_path / "state" / "models")
    assert records.read("ctr") is None

    records.write(RECORD)

    again = Records(tmp_path / "state" / "models").read("ctr")
    assert again is not None
    assert again.hold == RECORD.hold
    assert (again.labels, again.epoch, again.versions) == (
        RECORD.labels, RECORD.epoch, RECORD.versions,
    )  # fmt: skip
    assert (tmp_path / "state" / "models").stat().st_mode & 0o777 == 0o700
    assert os.listdir(tmp_path / "state" / "models") == ["ctr.json"]


def test_a_later_write_replaces_the_whole(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write(RECORD)
    records.write(ModelRecord(model="ctr"))
    again = records.read("ctr")
    assert again is not None
    assert (again.hold, again.labels, again.versions) == (None, {}, ())


@settings(max_examples=300)
@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_no_flipped_bit_becomes_another_hold(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    folder = tmp_path_factory.mktemp("r")
    Records(folder).write(RECORD)
    file = folder / "ctr.json"
    data = bytearray(file.read_bytes())
    data[place % len(data)] ^= 1 << bit
    file.write_bytes(data)

    assert Records(folder).read("ctr") is None
    assert os.listdir(folder) == ["ctr.json.aside"]


def test_no_truncated_file_is_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = Records(tmp_path)
    records.write(RECORD)
    whole = (tmp_path / "ctr.json").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "ctr.json").write_bytes(whole[:length])
        assert records.read("ctr") is None
        assert not (tmp_path / "ctr.json").exists()
    assert "renamed to ctr.json.aside" in caplog.text
    assert {vars(line)["event"] for line in caplog.records} == {"record_unreadable"}


def test_the_file_of_an_older_release_without_later_fields_is_taken(tmp_path: Path) -> None:
    document = {"format": 1, "model": "ctr", "hold": {"version": 42, "delta": 3}, "labels": {}}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    signed = {**document, "check": hashlib.sha256(text.encode()).hexdigest()}
    (tmp_path / "ctr.json").write_text(json.dumps(signed))

    record = Records(tmp_path).read("ctr")

    assert record is not None
    assert record.hold == Hold(42, 3)


def test_a_newer_format_is_set_aside_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ctr.json").write_text('{"format": 2, "model": "ctr", "pins": []}')
    with caplog.at_level(logging.ERROR):
        assert Records(tmp_path).read("ctr") is None
    assert "is of a newer release" in caplog.text
    assert (tmp_path / "ctr.json.aside").exists()


def test_the_file_of_another_model_is_not_taken(tmp_path: Path) -> None:
    Records(tmp_path).write(RECORD)
    (tmp_path / "ctr.json").rename(tmp_path / "cvr.json")
    assert Records(tmp_path).read("cvr") is None


def test_a_folder_in_its_place_is_survived(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ctr.json").mkdir()
    assert Records(tmp_path).read("ctr") is None
    assert "cannot be read" in caplog.text
    with pytest.raises(Unavailable, match="state_dir: what model 'ctr' is to serve cannot be"):
        Records(tmp_path).write(RECORD)
    assert os.listdir(tmp_path) == ["ctr.json"]
