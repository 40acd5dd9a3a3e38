"""`python -m chaos`: minutes of kills at 60 % of capacity, for each kind of process.

Prints one line for each kind, what was judged, and every broken rule. Exit code 0: nothing was
broken; 1: something was, or did not come back.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

from anabranch_testing.servers import RunningServer
from chaos.judging import Complaint, Rule, Victim
from chaos.killing import Outcome, Rules, kill_at_random
from chaos.restarts import forgotten
from chaos.stages import limited_to, staged_server
from chaos.subjects import DELTAS, REWRITTEN, TABLED, TELLING, Subject, requests_of
from openloop import HttpTransport, Plan, measure

_VICTIMS: tuple[Victim, ...] = ("worker", "supervisor", "loader", "publisher")
_SHARE = 0.6


def main() -> int:
    """Kill, and say what came of it."""
    parser = _parser()
    options = parser.parse_args()
    subject: Subject = options.subject
    known = _VICTIMS if subject.deltas else _VICTIMS[:-1]
    chosen: Sequence[Victim] = options.victims or known
    if unknown := set(chosen) - set(known):
        parser.error(f"--victims {' '.join(unknown)}: only with --deltas")
    kinds: list[Sequence[Victim]] = [[victim] for victim in chosen]
    if len(kinds) > 1:
        kinds.append(chosen)
    failed = False
    for victims in kinds:
        failed |= _is_broken(subject, victims, options)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each kind of process")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rate", type=float, help="requests a second; default 60 %% of capacity")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--victims", nargs="+", choices=_VICTIMS)
    parser.add_argument("--keep", type=Path, help="new folder in which all files stay")
    parser.add_argument(
        "--address-space-mib", type=int, help="that every process may have (RLIMIT_AS)"
    )
    subjects = parser.add_mutually_exclusive_group()
    subjects.add_argument(
        "--tables",
        dest="subject",
        action="store_const",
        const=TABLED,
        default=TELLING,
        help="a model with tables: rows and weights of each version are its number",
    )
    subjects.add_argument(
        "--rows",
        dest="subject",
        action="store_const",
        const=REWRITTEN,
        help="a model with tables whose rows are all changed, again and again",
    )
    subjects.add_argument(
        "--deltas",
        dest="subject",
        action="store_const",
        const=DELTAS,
        help="a model with tables that gets deltas, some of them damaged",
    )
    return parser


def _is_broken(subject: Subject, victims: Sequence[Victim], options: argparse.Namespace) -> bool:
    """Kill processes of these kinds, and say what came of it."""
    name = "+".join(victims)
    workers = ("--workers", str(options.workers))
    limit = options.address_space_mib
    prefix = limited_to(limit << 20) if limit else ()
    with _folder(options.keep, name) as folder:
        with staged_server(subject, folder, *workers, prefix=prefix) as (server, repository):
            rate = options.rate or _SHARE * _capacity(subject, server)
            rules = Rules(victims, options.seconds, rate, seed=options.seed)
            try:
                outcome = kill_at_random(server, subject, repository, options.workers, rules)
            except TimeoutError as error:
                print(f"{name}: {error}; the server's last words:")
                print("\n".join(server.log.read_text(errors="replace").splitlines()[-30:]))
                return True
        broken = list(outcome.complaints)
        if outcome.published is not None:
            broken += forgotten(subject, folder, outcome.published, *workers, prefix=prefix)
    print(_text(subject, victims, rate, outcome, broken), flush=True)
    for complaint in broken[:20]:
        print(f"  {complaint.rule}: {complaint.words}")
    return bool(broken)


@contextmanager
def _folder(kept: Path | None, name: str) -> Iterator[Path]:
    if kept is None:
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
    else:
        (kept / name).mkdir(parents=True)
        yield kept / name


def _capacity(subject: Subject, server: RunningServer) -> float:
    plan = Plan(rate=1e9, seconds=60, connections=24, timeout_s=60.0, max_requests=5000)
    result = measure(plan, HttpTransport(server.http), requests_of(subject, server.http))
    return result.counts.ok.count / result.elapsed_s


def _text(
    subject: Subject,
    victims: Sequence[Victim],
    rate: float,
    outcome: Outcome,
    broken: Sequence[Complaint],
) -> str:
    counts = outcome.result.counts
    rules = Counter[str](complaint.rule for complaint in broken)
    changes = f", {outcome.marker} changes of all rows" if subject.markers else ""
    lines = [
        f"{subject.model}, {'+'.join(victims)}: {len(outcome.kills)} kills under {rate:,.0f} "
        f"requests/s; {counts.requests} requests, {counts.outcomes.get('reset', 0)} resets, "
        f"{len(broken)} rules broken; p99 {counts.ok.p99_ms:.1f} ms; whole again in "
        f"{max(outcome.back_s, default=0.0):.1f} s at most; {outcome.versions} versions{changes}",
        "  broken: " + ", ".join(f"{rule} {rules[rule]}" for rule in get_args(Rule)),
    ]
    if outcome.published is not None:
        kinds = outcome.published.kinds
        faults = ", ".join(
            f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind != "good"
        )
        first, last = outcome.cache_bytes
        lines.append(
            f"  {kinds['good']} deltas and versions acknowledged; planted: {faults or 'nothing'}; "
            f"cache folder {first >> 10} -> {last >> 10} KiB"
        )
    for role, now in outcome.after.items():
        then = outcome.before.get(role, now)
        lines.append(
            f"  {role}: {then.descriptors} -> {now.descriptors} descriptors, "
            f"{then.memory_bytes >> 20} -> {now.memory_bytes >> 20} MiB, "
            f"{now.generations} generations and {now.segments} segments mapped"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
