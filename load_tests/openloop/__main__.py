"""`python -m openloop URL --body FILE --rate 500`: POST bodies at a constant rate, print what came.

Text goes to stderr, `--json` to a file or, with `-`, to stdout. Exit code 0: it could measure,
whatever the server did; 1: not one connection could be made; 2: wrong usage.
"""

import argparse
import gc
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from openloop.background import measure
from openloop.http_link import HttpTransport, post
from openloop.limit import measure_limit
from openloop.plan import Plan, Result
from openloop.text import describe


def main() -> int:
    """Run one load, or measure the loop's own limit."""
    parser = _parser()
    options = parser.parse_args()
    if options.limit:
        limit = measure_limit(
            options.limit_body_bytes, options.connections, options.requests or 100_000
        )
        print(f"{limit:,.0f} requests/s is this loop's own limit here", file=sys.stderr)
        return 0
    if options.url is None or not options.body:
        parser.error("expected a URL and at least one --body, or --limit")
    try:
        plan = Plan(
            rate=options.rate,
            seconds=options.seconds,
            connections=options.connections,
            arrivals=options.arrivals,
            timeout_s=options.timeout,
            warm_up_s=options.warm_up,
            max_requests=options.requests,
            max_waiting=options.waiting,
            seed=options.seed,
        )
        headers = dict(_header(line) for line in options.header)
    except ValueError as error:
        parser.error(str(error))
    url = urlsplit(options.url)
    if url.scheme != "http" or not url.hostname:
        parser.error(f"{options.url}: expected http://HOST[:PORT]/PATH")
    address = url.netloc if url.port else f"{url.netloc}:80"
    target = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    requests = [post(url.netloc, target, body.read_bytes(), headers) for body in options.body]
    gc.freeze()
    try:
        result = measure(plan, HttpTransport(address), requests)
    except OSError as error:
        print(f"{address}: {error}", file=sys.stderr)
        return 1
    print(describe(result), file=sys.stderr)
    return _write(options.json, result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m openloop", description=__doc__)
    parser.add_argument("url", nargs="?", help="http://HOST:PORT/PATH to POST to")
    parser.add_argument("--body", type=Path, action="append", help="file to send; several in turn")
    parser.add_argument("--header", action="append", default=[], help="'Name: value' of every body")
    parser.add_argument("--rate", type=float, default=100.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long they are due")
    parser.add_argument("--warm-up", type=float, default=0.0, help="first seconds not counted")
    parser.add_argument("--requests", type=int, help="stop after so many")
    parser.add_argument(
        "--waiting", type=int, default=100_000, help="that may wait for a connection"
    )
    parser.add_argument("--arrivals", choices=("constant", "poisson"), default="constant")
    parser.add_argument("--seed", type=int, default=1, help="of Poisson arrivals")
    parser.add_argument("--connections", type=int, default=64, help="kept connections")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds from the due time")
    parser.add_argument("--json", help="write the result to this file, '-' for stdout")
    parser.add_argument("--limit", action="store_true", help="measure the loop's own limit")
    parser.add_argument("--limit-body-bytes", type=int, default=2048)
    return parser


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon:
        raise ValueError(f"header {line!r}: expected 'Name: value'")
    return name.strip(), value.strip()


def _write(target: str | None, result: Result) -> int:
    if target is not None:
        text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
        if target == "-":
            sys.stdout.buffer.write(text)
        else:
            Path(target).write_bytes(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
