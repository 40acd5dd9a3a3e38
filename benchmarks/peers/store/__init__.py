"""What users of embeddings reach for instead: fbgemm, torch, key-value stores; `make peers`.

They are installed in `.venvs/store-peers`, whose packages join the path of the benchmark's own
process behind its own, because what is compared must alternate within one process. So both
environments need the same Python.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

__all__ = ["Missing", "peer"]

_ENVIRONMENT: Final = Path(__file__).parents[3] / ".venvs" / "store-peers"


class Missing(Exception):
    """A peer is not here; the text says why, and what to do."""


def peer(name: str) -> ModuleType:
    """Import a module of the peers' environment.

    Raises:
        Missing: it is not installed, for another Python, or does not load.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = _ENVIRONMENT / "lib" / version / "site-packages"
    if not packages.is_dir():
        raise Missing(f"{name} is not installed for {version}: make peers")
    if str(packages) not in sys.path:
        sys.path.append(str(packages))
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Missing(f"{name} does not load ({error}): make peers") from error
