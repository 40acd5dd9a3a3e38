"""A CUDA driver for tests, built on demand, and runs of checks on it in processes of their own.

`libcuda.so.1` is looked up once in the life of a process, so what runs on the stub runs in a
process that was started with its folder in LD_LIBRARY_PATH. See docs/gpu_testing.md.
"""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Final, Literal

__all__ = ["Mode", "build", "built_stub", "run_checks", "stub_environ", "what_is_missing"]

Mode = Literal["lazy", "eager"]

_ROOT: Final = Path(__file__).resolve().parents[3]
_SOURCE: Final = _ROOT / "tests/support/cuda_stub"
_LIBRARY: Final = "libcuda.so.1"
_HEADERS: Final = "nvidia-cuda-runtime"


def what_is_missing() -> str:
    """Return what the stub or its callers need and this environment lacks; "" for nothing."""
    for module in ("cuda.core", "cuda.bindings"):
        try:
            found = importlib.util.find_spec(module) is not None
        except ModuleNotFoundError:
            found = False
        if not found:
            return f"{module} is not installed: make setup"
    if _headers() is None:
        return f"{_HEADERS} (cuda.h) is not installed: make setup"
    if _tool("cmake") is None or _tool("ninja") is None:
        return "cmake or ninja is not installed: make setup"
    return ""


def build(target: str, *, sanitize: str = "") -> Path:
    """Build a target of tests/support/cuda_stub and return the folder that it lies in.

    What is up to date is left alone. Several processes may call it at once.

    Args:
        target: of its CMakeLists.txt.
        sanitize: sanitizers to build with, as for `-fsanitize`.

    Raises:
        RuntimeError: cmake or the compiler failed; the message holds what they said.
    """
    folder = _ROOT / "build" / "-".join(part for part in ("cuda-stub", sanitize) if part)
    folder.mkdir(parents=True, exist_ok=True)
    cmake, ninja = str(_tool("cmake")), str(_tool("ninja"))
    configure = [cmake, "-S", str(_SOURCE), "-B", str(folder), "-G", "Ninja"]
    settings = {
        "CMAKE_MAKE_PROGRAM": ninja,
        "CMAKE_BUILD_TYPE": "RelWithDebInfo",
        "CUDA_STUB_HEADERS": str(_headers()),
        "CUDA_STUB_SANITIZE": sanitize,
    }
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _run([*configure, *(f"-D{name}={value}" for name, value in settings.items())])
        _run([cmake, "--build", str(folder), "--target", target])
    return folder


def built_stub() -> Path:
    """Build the stub where it is not up to date, and return the folder of its libcuda.so.1.

    Raises:
        RuntimeError: it does not build.
    """
    folder = build("cuda_stub")
    assert (folder / _LIBRARY).exists()
    return folder


def stub_environ(
    mode: Mode,
    *,
    devices: int = 1,
    memory_bytes: int = 1 << 30,
    base: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return an environment whose processes find the stub for their driver.

    Args:
        mode: when operations run: as late as is legal, or within the call.
        devices: how many there are.
        memory_bytes: what each of them has.
        base: environment that it is added to.

    Raises:
        RuntimeError: the stub does not build.
    """
    folders = [str(built_stub()), *filter(None, [base.get("LD_LIBRARY_PATH")])]
    return {
        **base,
        "LD_LIBRARY_PATH": os.pathsep.join(folders),
        "ANABRANCH_CUDA_STUB_MODE": mode,
        "ANABRANCH_CUDA_STUB_DEVICES": str(devices),
        "ANABRANCH_CUDA_STUB_MEMORY": str(memory_bytes),
    }


def run_checks(
    path: Path, mode: Mode, *arguments: str, devices: int = 1, timeout_s: float = 300.0
) -> str:
    """Run a module of tests with pytest, in a process whose driver is the stub.

    Args:
        path: of the module.
        mode: when operations run.
        arguments: for pytest, beside the path.
        devices: how many there are.
        timeout_s: after which the process is killed.

    Returns:
        What pytest said.

    Raises:
        RuntimeError: a test failed, was skipped, or there was none; the message holds what
            pytest said.
        subprocess.TimeoutExpired: it took too long.
    """
    plugins = ("no:cacheprovider", "no:xdist", "anabranch_testing.cuda_fixtures")
    command = [sys.executable, "-m", "pytest", "-q", *(f"-p{plugin}" for plugin in plugins)]
    environ = stub_environ(mode, devices=devices)
    found_at = [str(_ROOT / "tests/support"), *filter(None, [environ.get("PYTHONPATH")])]
    ended = subprocess.run(
        [*command, str(path), *arguments],
        cwd=_ROOT,
        env={**environ, "PYTHONPATH": os.pathsep.join(found_at)},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    said = ended.stdout + ended.stderr
    if ended.returncode != 0 or " skipped" in said:
        raise RuntimeError(f"{path.name}, {mode}: pytest ended with {ended.returncode}\n{said}")
    return said


def _headers() -> Path | None:
    """Return the folder of cuda.h, None where its package is not installed."""
    try:
        listed = files(_HEADERS) or []
    except PackageNotFoundError:
        return None
    found = [Path(str(entry.locate())) for entry in listed if entry.name == "cuda.h"]
    return found[0].parent if found else None


def _tool(name: str) -> Path | None:
    """Return a program of this environment, or else of the PATH."""
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return beside
    found = shutil.which(name)
    return None if found is None else Path(found)


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
