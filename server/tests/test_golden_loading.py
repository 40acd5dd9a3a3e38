"""A loader proves golden requests before it says that a version can be served."""

import json
from pathlib import Path

import numpy as np
import pytest

from anabranch_server.load_failures import failure_reason
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.examination import examine
from anabranch_server.loader.row_cache import RowCache
from anabranch_server.processes.failures import error_of
from anabranch_server.processes.loader_messages import Found, LoadVersion, Refused
from anabranch_testing.graphs import write_graph

GRAPH = """
rank (int64[N] device, int64[N] item) => (float[N] ctr)
{ d = Cast <to: int = 1> (device) i = Cast <to: int = 1> (item) ctr = Add (d, i) }
"""
YAML = """
features:
  - {name: device, side: candidate, type: string, vocabulary: {values: [ios, web], first_id: 1}}
  - {name: item, side: candidate, type: int64}
ranking: {id: item, score: {output: ctr}}
"""
GOLDEN = {
    "request": {"candidates": {"device": ["web", "ios"], "item": [5, 6]}},
    "keys": {"device": [2, 1], "item": [5, 6]},
    "scores": {"ctr": [7.0, 7.0]},
}


def examined(root: Path, serving: str = "") -> Found | Refused:
    folder = root / "m"
    request = LoadVersion(
        number=0,
        model="m",
        version=1,
        model_path=str(folder),
        version_path=str(folder / "1"),
        serving_yaml=serving,
        priority="normal",
        available_bytes=None,
    )
    cache = root / "cache"
    return examine(request, lambda progress: None, GraphBuilder(cache), RowCache(cache, 0.25))


@pytest.fixture
def version(tmp_path: Path) -> Path:
    folder = tmp_path / "m" / "1"
    write_graph(folder, GRAPH)
    (folder / "model.yaml").write_text(YAML)
    (folder / "golden").mkdir()
    (folder / "golden" / "a.json").write_text(json.dumps(GOLDEN))
    return folder


def test_a_version_that_proves_itself_is_found(version: Path, tmp_path: Path) -> None:
    found = examined(tmp_path)
    assert isinstance(found, Found)
    assert not [note for note in found.version.notes if "golden" in note]
    assert np.isfinite(found.phase_ms["comparing"])


def test_a_version_with_another_vocabulary_is_refused_for_parity(
    version: Path, tmp_path: Path
) -> None:
    (version / "model.yaml").write_text(YAML.replace("first_id: 1", "first_id: 0"))
    refused = examined(tmp_path)
    assert isinstance(refused, Refused)
    text = "golden/a.json: feature 'device', candidate 0: found key 1, expected 2"
    assert refused.error == text
    assert failure_reason(error_of(refused.kind, refused.error)) == "parity"
    warned = examined(tmp_path, "golden: warn")
    assert isinstance(warned, Found)
    assert [note for note in warned.version.notes if text in note]
    assert isinstance(examined(tmp_path, "golden: off"), Found)
