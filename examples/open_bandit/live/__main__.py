"""Train on the days that the example's model has not seen, hour by hour, while it is served.

Run in the folder `examples` as `python -m open_bandit.live`, or as `make demo-live`.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from importlib import resources
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Final

import open_bandit
from anabranch_server.demo_requests import MODEL, demo_data, load
from anabranch_server.demo_server import demo_server
from anabranch_wire.errors import AnabranchError
from open_bandit.impressions import read_impressions, read_items
from open_bandit.live import report
from open_bandit.live.hours import hours
from open_bandit.live.picture import draw
from open_bandit.live.proof import prove
from open_bandit.live.releases import Releases
from open_bandit.live.replay import Published, Replay, scores_of_users
from open_bandit.live.training import Trainer
from open_bandit.live.visitors import Visitors
from open_bandit.live.weights import read_weights
from open_bandit.recording import choose_users
from open_bandit.split import SPLIT

_DATA: Final = Path(open_bandit.__file__).parent / "data"
_PICTURE: Final = Path(open_bandit.__file__).parents[2] / "build" / "demo-live.png"


def main() -> None:
    """Parse the command line and run; exit code 1 where something was not as it should be."""
    parser = argparse.ArgumentParser(prog="open_bandit.live", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="serve until Ctrl-C afterwards")
    parser.add_argument("--hours", type=int, help="learn only the first ones (all 48)")
    parser.add_argument("--pace-s", type=float, default=1.2, help="seconds for each hour (1.2)")
    parser.add_argument("--picture", type=Path, default=_PICTURE, help=f"PNG ({_PICTURE})")
    options = parser.parse_args()
    if options.hours is not None and options.hours < 1:
        parser.error(f"--hours {options.hours}: expected 1 or more")
    # SIGINT too: a shell starts what it puts in the background with SIGINT ignored.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-demo-live-") as scratch:
            good = _run(Path(scratch), options.hours, options.pace_s, options.picture, options.keep)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return
    except AnabranchError as error:
        sys.exit(f"demo-live: {error.message}")
    if not good:
        sys.exit("demo-live: not everything was as it should be, see above")


def _run(scratch: Path, limit: int | None, pace_s: float, picture: Path, keep: bool) -> bool:
    """Serve a copy of the demo's repository, replay the log into it, and say how it went."""
    with resources.as_file(demo_data() / "models") as shipped:
        repository = shutil.copytree(shipped, scratch / "models")
    items = read_items(_DATA / "bts-item_context.csv")
    log = read_impressions(_DATA / "bts-all.csv.gz").split(SPLIT)[1]
    recording, users = load(), log.rows(choose_users(log))
    onnx = (repository / MODEL / "1" / "model.onnx").read_bytes()
    releases = Releases(repository / MODEL, recording, users, items)
    with demo_server(repository) as server:
        print(f"serving at http://{server.ready.http}, status page http://{server.ready.admin}/\n")
        with Visitors(f"http://{server.ready.http}", recording) as visitors:
            frozen, trainer = Trainer(read_weights(onnx)), Trainer(read_weights(onnx))
            replay = Replay(frozen, trainer, releases, visitors, recording)
            published: list[Published] = []
            print(report.HEADING, flush=True)
            for each in replay.run(list(islice(hours(log, items), limit)), pace_s):
                published.append(each)
                print(report.line(each), flush=True)
        answers, failures = visitors.answers, visitors.failures
        proof = prove(answers, scores_of_users(frozen, recording), published)
        print("", *report.days(published), "", sep="\n")
        print(*report.verdict(published, proof, failures), sep="\n")
        draw(picture, recording, answers, published)
        print(f"picture: {picture}", flush=True)
        if keep:
            print("serving until Ctrl-C", file=sys.stderr, flush=True)
            server.process.wait()
    return proof.holds and not failures and all(each.seconds is not None for each in published)


def _stop(signum: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
