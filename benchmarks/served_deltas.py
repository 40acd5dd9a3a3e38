"""What a server serves, as its admin port tells it: waited for."""

import json
import time
import urllib.request
from typing import Final

__all__ = ["served", "wait_served"]

_POLL_S: Final = 0.05


def served(admin: str, model: str) -> tuple[int, int]:
    """Return the newest version of a model that answers, and its delta; zeros where none does.

    Args:
        admin: `host:port` of the admin port.
        model: its name.
    """
    with urllib.request.urlopen(f"http://{admin}/admin/v1/models/{model}", timeout=20) as answer:
        told = json.loads(answer.read())
    ready = [one for one in told["versions"] if one["state"] == "READY"]
    return max(((one["version"], one["delta"]) for one in ready), default=(0, 0))


def wait_served(admin: str, model: str, version: int, delta: int, timeout_s: float = 300.0) -> None:
    """Wait until a delta of a version, or a newer one, answers.

    Raises:
        TimeoutError: it does not.
    """
    end = time.monotonic() + timeout_s
    while (now := served(admin, model)) < (version, delta):
        if time.monotonic() > end:
            raise TimeoutError(f"{version}+{delta} is not served, but {now[0]}+{now[1]}")
        time.sleep(_POLL_S)
