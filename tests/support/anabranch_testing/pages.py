"""Pages of the documentation, followed as they stand."""

import re
import subprocess
from pathlib import Path
from typing import Final

from anabranch_testing.servers import RunningServer

__all__ = ["at", "blocks", "run"]

_ROOT: Final = Path(__file__).parents[3]
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str, language: str) -> list[str]:
    """Return the code of a page in one language, in the order it stands."""
    return [code for found, code in _BLOCK.findall((_ROOT / page).read_text()) if found == language]


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder; returns what it printed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def at(server: RunningServer, code: str) -> str:
    """Return the code with the address of the server in place of the default one."""
    assert code.count("127.0.0.1:8000") == 1
    return code.replace("127.0.0.1:8000", server.http)
