"""The interpreter, our compiled part, the runtime, our folders."""

import os
from pathlib import Path
from typing import Final

from anabranch_runtime.backends.ort_library import import_onnxruntime
from anabranch_server.checks.check import Check
from anabranch_server.folders import own_folder
from anabranch_wire.errors import AnabranchError

__all__ = ["check_folder", "check_native_core", "check_onnxruntime", "check_python"]

_MIN_PYTHON: Final = (3, 11)


def check_python(version: tuple[int, int, int]) -> Check:
    """The interpreter."""
    found = ".".join(map(str, version))
    if version < _MIN_PYTHON:
        return Check("python", "failure", found, "install Python 3.11 or newer")
    return Check("python", "ok", found)


def check_native_core() -> Check:
    """The compiled part of this package."""
    try:
        from anabranch_runtime.cpu import kernel_isa

        kernels = kernel_isa()
    except ImportError as error:
        remedy = "install the wheel for this Python and CPU, or build it with `make setup`"
        return Check("native core", "failure", str(error), remedy)
    return Check("native core", "ok", f"kernels for {kernels}")


def check_onnxruntime() -> Check:
    """The library that runs dense graphs: exactly one of its two distributions."""
    try:
        library = import_onnxruntime()
    except AnabranchError as error:
        found, _, remedy = error.message.partition(": ")
        return Check("onnxruntime", "failure", found, remedy)
    providers = ", ".join(library.get_available_providers())
    return Check("onnxruntime", "ok", f"{library.__version__} ({providers})")


def check_folder(name: str, path: Path) -> Check:
    """One of the server's own folders: private and writable."""
    try:
        own_folder(path)
    except AnabranchError as error:
        setting = f"--{name.split()[0]}-dir"
        return Check(name, "failure", error.message, f"name another with {setting}")
    if not os.access(path, os.W_OK | os.X_OK):
        return Check(name, "failure", f"{path} is not writable", "make it writable")
    return Check(name, "ok", str(path))
