"""A result for people: one line a fact, failures and warnings where they cannot be missed."""

from openloop.histogram import Summary
from openloop.plan import Result

__all__ = ["describe"]


def describe(result: Result) -> str:
    """Return `result` as lines of text."""
    counts = result.counts
    others = sum(n for outcome, n in counts.outcomes.items() if outcome not in ("ok", "status"))
    lines = [
        f"requests    {counts.requests} due in {result.seconds:.1f} s at {result.rate:g}/s",
        f"answered    {counts.ok.count} with 2xx, {result.ok_per_s:.1f}/s",
        f"latency     {_spread(counts.ok)}",
    ]
    lines += [
        f"status {status}  {summary.count}, {_spread(summary)}"
        for status, summary in counts.latencies.items()
    ]
    if others:
        failed = [
            f"{n} {name}" for name, n in counts.outcomes.items() if name not in ("ok", "status")
        ]
        lines.append(f"no answer   {', '.join(failed)}")
    lines += [
        f"waited      {_spread(counts.wait)} for a connection",
        f"slip        {_spread(counts.slip)}, {result.cpu_share:.0%} of a core",
        *(f"warning     {warning}" for warning in result.warnings),
    ]
    return "\n".join(lines)


def _spread(summary: Summary) -> str:
    return (
        f"p50 {summary.p50_ms:.3f} ms, p90 {summary.p90_ms:.3f}, p99 {summary.p99_ms:.3f}, "
        f"p99.9 {summary.p999_ms:.3f}, max {summary.max_ms:.3f}"
    )
