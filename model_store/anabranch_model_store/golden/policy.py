"""What comes of golden requests: a version is refused, or something is said, or nothing is done."""

from collections.abc import Callable
from typing import Literal

from anabranch_model_store.golden.cases import golden_files
from anabranch_model_store.golden.proof import GoldenReport, GoldenVersion, prove
from anabranch_model_store.version_files import VersionFiles
from anabranch_wire.errors import AnabranchError, Mismatch

__all__ = ["golden_notes", "proven"]

_SHOWN = 10


def golden_notes(files: VersionFiles, version: GoldenVersion) -> tuple[str, ...]:
    """Run the golden requests of a version as its serving.yaml says; return what is to be said.

    Args:
        files: of the version.
        version: prepared.

    Raises:
        Mismatch: a key or a score is another (`golden: refuse`); the message names the first one.
        InvalidInput: a golden file is malformed or does not fit the version (`golden: refuse`).
        AnabranchError: the version cannot be built.
    """
    policy = version.deployment.golden
    if policy == "off" or not golden_files(files):
        return ()
    report, note = proven(policy, lambda: prove(files, version))
    if report is None:
        return (note,)
    if not report.unproven:
        return ()
    shown = ", ".join(report.unproven[:_SHOWN])
    return (f"no golden request has keys of these features: {shown}",)


def proven(
    policy: Literal["refuse", "warn"], prove: Callable[[], GoldenReport]
) -> tuple[GoldenReport | None, str]:
    """Return what golden requests showed; or None, and what is to be said, where they fail.

    Args:
        policy: what comes of that.
        prove: runs them.

    Raises:
        Mismatch: a key or a score is another (`golden: refuse`); the message names the first one.
        AnabranchError: they cannot be run (`golden: refuse`).
    """
    try:
        report = prove()
        if report.difference is not None:
            raise Mismatch(report.difference.text)
    except AnabranchError as error:
        if policy == "refuse":
            raise
        return None, f"served though its golden requests fail (golden: warn): {error.message}"
    return report, ""
