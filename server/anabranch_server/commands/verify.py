"""`anabranch verify DIR`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch_server.commands.local_places import local_place

if TYPE_CHECKING:
    from anabranch_model_store.verification import Verification

__all__ = ["verify"]


def verify(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of a version.", parser=local_place)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a version: its files against the manifest, checksums, and its plan against its graphs.

    An optimised version that holds its original, too, is compared with it.
    """
    from anabranch_model_store.verification import verify_folder
    from anabranch_runtime.backends.ort_runner import OrtModelRunner
    from anabranch_server.commands.output import fail, print_json, say
    from anabranch_wire.errors import NotFound

    try:
        found = verify_folder(folder, OrtModelRunner())
    except NotFound as error:
        fail(error.message)
    if as_json:
        print_json(_document(found), compact=True)
    else:
        for error_text in found.errors:
            say(error_text)
        if found.ok:
            print(f"{folder}: {len(found.files)} files are as they should be; {_parity(found)}")
    if not found.ok:
        raise typer.Exit(1)


def _document(found: "Verification") -> dict[str, object]:
    parity = None
    if found.parity is not None:
        one = found.parity
        parity = {
            "max_abs_diff": one.max_abs_diff if one.max_abs_diff != float("inf") else None,
            "cases": one.cases,
            "refused": one.refused,
            "rank_agreement": one.rank_agreement,
        }
    return {
        "ok": found.ok,
        "files": [asdict(file) for file in found.files],
        "parity": parity,
        "errors": found.errors,
    }


def _parity(found: "Verification") -> str:
    if found.parity is None:
        return "there is no original to compare with"
    return (
        f"compared with the original on {found.parity.cases} batches: numbers differ by at most "
        f"{found.parity.max_abs_diff:.3g}"
    )
