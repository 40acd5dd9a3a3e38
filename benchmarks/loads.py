"""Closed-loop loads from public tools: wrk for HTTP/1.1, h2load for gRPC, pinned to one core.

A closed loop measures capacity: every connection sends its next request when the last one is
answered, so latencies are those of a full server.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from ctr_mlp import Body

__all__ = ["Load", "MissingTool", "run_h2load", "run_wrk"]

_WRK_SCRIPT: Final = """\
wrk.method = "POST"
for name, value in string.gmatch(os.getenv("HEADERS"), "([^:\\n]+): ([^\\n]+)") do
  wrk.headers[name] = value
end
local bodies = {}
for path in string.gmatch(os.getenv("BODIES"), "[^\\n]+") do
  local body = io.open(path, "rb")
  bodies[#bodies + 1] = body:read("*a")
  body:close()
end
if #bodies == 1 then
  wrk.body = bodies[1]
else
  local requests, turn = {}, 0
  init = function(args)
    for i, body in ipairs(bodies) do
      requests[i] = wrk.format(nil, nil, nil, body)
    end
  end
  request = function()
    turn = turn % #requests + 1
    return requests[turn]
  end
end
done = function(summary, latency, requests)
  local e = summary.errors
  print(string.format(
    'RESULT {"requests": %d, "seconds": %.6f, "p50_ms": %.4f, "p99_ms": %.4f, "errors": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3,
    latency:percentile(99) / 1e3, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class MissingTool(Exception):
    """The load tool is not on this machine; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a run saw.

    Attributes:
        requests: answered requests.
        per_s: answered requests each second.
        p50_ms: median latency.
        p99_ms: 99th percentile of the latency.
    """

    requests: int
    per_s: float
    p50_ms: float
    p99_ms: float


def run_wrk(address: str, body: Body, connections: int, seconds: float, core: int) -> Load:
    """POST `body`, and others in turn, over `connections` kept-alive connections of one thread.

    Args:
        address: `host:port`.
        body: what to send, and where.
        connections: requests in flight.
        seconds: whole seconds, at least 1.
        core: the core that wrk is pinned to.

    Raises:
        MissingTool: wrk is not installed.
        RuntimeError: a request failed; a figure with errors in it is no figure.
    """
    if shutil.which("wrk") is None:
        raise MissingTool("wrk is not installed (Debian: apt-get install wrk)")
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "post.lua"
        script.write_text(_WRK_SCRIPT)
        headers = "".join(f"{name}: {value}\n" for name, value in body.headers.items())
        answer = subprocess.run(
            [
                "taskset", "-c", str(core), "wrk", "-t1", f"-c{connections}",
                f"-d{max(1, round(seconds))}s", "--timeout", "10s", "-s", str(script),
                f"http://{address}{body.target}",
            ],
            env={
                **os.environ,
                "BODIES": "\n".join(map(str, (body.path, *body.others))),
                "HEADERS": headers,
            },
            capture_output=True, text=True, check=False, timeout=seconds + 60,
        )  # fmt: skip
    line = next((x for x in answer.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        raise RuntimeError(f"wrk failed: {answer.stdout[-500:]}{answer.stderr[-500:]}")
    seen = json.loads(line.removeprefix("RESULT "))
    if seen["errors"]:
        raise RuntimeError(f"{seen['errors']} of {seen['requests']} requests failed")
    return Load(
        seen["requests"], seen["requests"] / seen["seconds"], seen["p50_ms"], seen["p99_ms"]
    )


def run_h2load(address: str, body: Body, connections: int, seconds: float, core: int) -> Load:
    """Call a unary gRPC method with a framed `body`, one stream a connection.

    h2load sees HTTP statuses only: check a call with a gRPC client first.

    Raises:
        MissingTool: h2load is not installed.
        RuntimeError: a request failed.
    """
    if shutil.which("h2load") is None:
        raise MissingTool("h2load is not installed (Debian: apt-get install nghttp2-client)")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "requests.tsv"
        headers = [f"--header={name}: {value}" for name, value in body.headers.items()]
        answer = subprocess.run(
            [
                "taskset", "-c", str(core), "h2load", f"-c{connections}", "-m1", "-t1",
                f"-D{max(1, round(seconds))}", f"--data={body.path}", f"--log-file={log}",
                *headers, f"http://{address}{body.target}",
            ],
            capture_output=True, text=True, check=False, timeout=seconds + 60,
        )  # fmt: skip
        counts = re.search(
            r"requests: .*?(\d+) succeeded, (\d+) failed, (\d+) errored", answer.stdout
        )
        rate = re.search(r"finished in ([\d.]+)(m?s), ([\d.]+) req/s", answer.stdout)
        if counts is None or rate is None:
            raise RuntimeError(f"h2load failed: {answer.stdout[-500:]}{answer.stderr[-500:]}")
        if int(counts[2]) or int(counts[3]):
            raise RuntimeError(f"{counts[2]} requests failed and {counts[3]} had errors")
        elapsed_ms = np.loadtxt(log, usecols=2, ndmin=1) / 1e3
    p50, p99 = np.percentile(elapsed_ms, [50, 99])
    return Load(int(counts[1]), float(rate[3]), float(p50), float(p99))
