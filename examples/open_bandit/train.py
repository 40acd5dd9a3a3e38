"""Train, judge, export, prove and record: writes everything that `anabranch demo` serves.

Trained on the days before `SPLIT`, judged on the rest. Run in the folder `examples` as
`python -m open_bandit.train`; README.md beside this file names the environment.
"""

import argparse
import datetime
import logging
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from anabranch_publish import publish_version
from anabranch_server.demo_requests import MODEL, Recording
from open_bandit.catalogue import write_catalogue
from open_bandit.features import Inputs, impression_inputs
from open_bandit.fitting import fit, score
from open_bandit.golden import golden_rankings, write_golden
from open_bandit.graph import OUTPUT, export, verify
from open_bandit.impressions import Impressions, Items, read_impressions, read_items
from open_bandit.network import ClickModel
from open_bandit.quality import auc, log_loss
from open_bandit.recording import choose_users, record
from open_bandit.split import SPLIT

_HERE: Final = Path(__file__).parent
_DEMO_DATA: Final = _HERE.parents[1] / "server" / "anabranch_server" / "demo_data"


def main() -> None:
    """Parse the command line and write the demo's files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=_DEMO_DATA, help="folder to write to")
    out: Path = parser.parse_args().out
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, unused here

    items = read_items(_HERE / "data" / "bts-item_context.csv")
    earlier, later = read_impressions(_HERE / "data" / "bts-all.csv.gz").split(SPLIT)
    inputs = impression_inputs(earlier, items)
    model = fit(inputs, earlier.clicks)
    _judge(model, earlier, later, impression_inputs(later, items))

    users = later.rows(choose_users(later))
    recording = record(users, items, partial(score, model))
    release = _Release(model, recording, users, items, event_time=float(earlier.times[-1]))
    _publish(out / "models", release)
    text = msgspec.json.format(msgspec.json.encode(recording), indent=1)
    (out / "requests.json").write_bytes(text + b"\n")
    print(f"{len(recording.users)} users with {len(recording.items)} candidates each: {out}")


def _judge(model: ClickModel, earlier: Impressions, later: Impressions, inputs: Inputs) -> None:
    """Print what the later days say about the model, and how little that is."""
    scores = score(model, inputs)
    rate = float(earlier.clicks.mean())
    area = auc(later.clicks, scores)
    print(f"trained on {_extent(earlier)}")
    print(f"judged on  {_extent(later)}")
    print(f"AUC        {area.value:.3f} +- {area.error:.3f} (0.5 is chance)")
    print(f"log-loss   {log_loss(later.clicks, scores):.5f}")
    print(f"  of a constant {rate:.3%}: {log_loss(later.clicks, np.full_like(scores, rate)):.5f}")
    print(f"mean score {scores.mean():.3%}, clicked {later.clicks.mean():.3%}")
    print(
        f"{later.clicks.sum():.0f} clicks cannot tell a good model from a bad one: "
        "this is an example of the way, not of the quality."
    )


def _extent(part: Impressions) -> str:
    first, last = (
        datetime.datetime.fromtimestamp(float(part.times[row]), datetime.UTC).date()
        for row in (0, -1)
    )
    clicks = int(part.clicks.sum())
    return f"{first} to {last}: {len(part):,} impressions, {clicks} clicks"


@dataclass(frozen=True, slots=True)
class _Release:
    """What becomes a version.

    Attributes:
        model: the fitted model.
        recording: its requests prove the exported graph, and the first becomes the warm-up.
        users: the impressions of those requests.
        items: the catalogue.
        event_time: of the newest impression that the model learned from.
    """

    model: ClickModel
    recording: Recording
    users: Impressions
    items: Items
    event_time: float


def _publish(models: Path, release: _Release) -> None:
    """Publish version 1 anew: the graph, what it means, the catalogue, warm-up and golden requests.

    Args:
        models: the model repository.
        release: what to publish.
    """
    shutil.rmtree(models / MODEL, ignore_errors=True)
    models.mkdir(parents=True, exist_ok=True)
    model, recording = release.model, release.recording
    requests = [recording.inputs(user) for user in recording.users]
    one_row = {name: values[:1] for name, values in requests[0].items()}
    with tempfile.TemporaryDirectory() as scratch:
        graph = Path(scratch) / "model.onnx"
        export(model, requests[0], graph)
        difference = max(verify(model, graph, rows) for rows in [*requests, one_row])
        print(f"model.onnx: {graph.stat().st_size:,} bytes, within {difference:.1e} of torch")
        warmup = [Path(scratch) / "ranking.npz", Path(scratch) / "one_row.npz"]
        _write_warmup(warmup[0], model, requests[0])
        _write_warmup(warmup[1], model, one_row)
        catalogue = Path(scratch) / "0000.parquet"
        write_catalogue(catalogue, release.items)
        rankings = golden_rankings(release.users)
        golden = write_golden(Path(scratch), rankings, release.items, partial(score, model))
        publish_version(
            models / MODEL,
            graph,
            version=1,
            model_yaml=_HERE / "model.yaml",
            warmup=warmup,
            golden=golden,
            items=[catalogue],
            event_time=release.event_time,
        )


def _write_warmup(path: Path, model: ClickModel, inputs: Inputs) -> None:
    """Write inputs and expected outputs in the form that a loading server checks."""
    expected = score(model, inputs)[:, None]
    np.savez(path, allow_pickle=False, **inputs, **{f"expected.{OUTPUT}": expected})


if __name__ == "__main__":
    main()
