"""`python -m chaos`: minutes of kills at 60 % of capacity, for each kind of process.

Prints one line for each kind and every broken rule. Exit code 0: nothing was broken; 1: something
was, or did not come back.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from anabranch_testing.servers import RunningServer, started_server
from anabranch_testing.telling_models import publish_telling
from chaos.judging import Victim
from chaos.killing import MODEL, Outcome, Rules, kill_at_random, request_of
from openloop import HttpTransport, Plan, measure

_VICTIMS: tuple[Victim, ...] = ("worker", "supervisor", "loader")
_SHARE = 0.6


def main() -> int:
    """Kill, and say what came of it."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind of process")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rate", type=float, help="requests a second; default 60 %% of capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", nargs="+", choices=_VICTIMS, default=list(_VICTIMS))
    options = parser.parse_args()
    failed = False
    kinds = [[victim] for victim in options.victims]
    if len(kinds) > 1:
        kinds.append(options.victims)
    for victims in kinds:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            repository = folder / "models"
            repository.mkdir()
            publish_telling(repository / MODEL, 1)
            (repository / MODEL / "serving.yaml").write_text(
                "format: 1\nqueue: {default_timeout_ms: 20000}\n"
            )
            (folder / "server").mkdir()
            with started_server(
                repository, folder / "server", "--workers", str(options.workers)
            ) as server:
                rate = options.rate or _SHARE * _capacity(server)
                rules = Rules(victims, options.seconds, rate, seed=options.seed)
                try:
                    outcome = kill_at_random(server, repository, options.workers, rules)
                except TimeoutError as error:
                    print(f"{'+'.join(victims)}: {error}; the server's last words:")
                    print("\n".join(server.log.read_text(errors="replace").splitlines()[-30:]))
                    failed = True
                    continue
        print(_line(victims, rate, outcome), flush=True)
        for complaint in outcome.complaints[:20]:
            print(f"  {complaint.rule}: {complaint.words}")
        failed |= bool(outcome.complaints)
    return int(failed)


def _capacity(server: RunningServer) -> float:
    plan = Plan(rate=1e9, seconds=60, connections=24, timeout_s=60.0, max_requests=5000)
    result = measure(plan, HttpTransport(server.http), [request_of(server.http)])
    return result.counts.ok.count / result.elapsed_s


def _line(victims: list[Victim], rate: float, outcome: Outcome) -> str:
    counts = outcome.result.counts
    return (
        f"{'+'.join(victims)}: {len(outcome.kills)} kills under {rate:,.0f} requests/s; "
        f"{counts.requests} requests, {counts.outcomes.get('reset', 0)} resets, "
        f"{len(outcome.complaints)} rules broken; p99 {counts.ok.p99_ms:.1f} ms; whole again in "
        f"{max(outcome.back_s, default=0.0):.1f} s at most; {outcome.versions} versions"
    )


if __name__ == "__main__":
    sys.exit(main())
