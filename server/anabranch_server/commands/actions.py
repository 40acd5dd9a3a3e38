"""`anabranch load|unload|reload|rollback|unpin [MODEL] --admin URL`."""

from typing import Annotated

import typer

__all__ = ["load", "reload", "rollback", "unload", "unpin"]

_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Which one.", show_default="the only one")
]
_Admin = Annotated[str, typer.Option(envvar="ANABRANCH_ADMIN_URL", help="The server's admin port.")]
_Wait = Annotated[float, typer.Option(min=0, help="Seconds to wait for the end; 0 only begins it.")]
_Json = Annotated[bool, typer.Option("--json", help="Print the operation as JSON.")]

_ADMIN = "http://127.0.0.1:8003"
_WAIT_S = 600.0


def load(
    model: _Model = None,
    version: Annotated[
        int | None, typer.Option(min=1, help="Version.", show_default="what the policy names")
    ] = None,
    admin: _Admin = _ADMIN,
    wait_s: _Wait = _WAIT_S,
    as_json: _Json = False,
) -> None:
    """Load a version into a running server, and serve it."""
    from anabranch_server.commands.following import carry_out

    body = {"version": version}
    carry_out("load", model, body, admin=admin, wait_s=wait_s, as_json=as_json)


def unload(
    model: _Model = None,
    version: Annotated[int | None, typer.Option(min=1, help="Version.", show_default="all")] = None,
    admin: _Admin = _ADMIN,
    wait_s: _Wait = _WAIT_S,
    as_json: _Json = False,
) -> None:
    """Stop serving a version, or all of a model, and free it."""
    from anabranch_server.commands.following import carry_out

    body = {"version": version}
    carry_out("unload", model, body, admin=admin, wait_s=wait_s, as_json=as_json)


def reload(
    model: _Model = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Try broken versions and deltas again, nothing changed or not."
        ),
    ] = False,
    unpin: Annotated[bool, typer.Option("--unpin", help="Release a hold first.")] = False,
    admin: _Admin = _ADMIN,
    wait_s: _Wait = _WAIT_S,
    as_json: _Json = False,
) -> None:
    """Look at a model's folder now, and apply what is new."""
    from anabranch_server.commands.following import carry_out

    body = {"force": force, "unpin": unpin}
    carry_out("reload", model, body, admin=admin, wait_s=wait_s, as_json=as_json)


def rollback(
    model: _Model = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION[+DELTA]", help="Snapshot, as 42 or 42+16.", show_default="previous"
        ),
    ] = None,
    admin: _Admin = _ADMIN,
    wait_s: _Wait = _WAIT_S,
    as_json: _Json = False,
) -> None:
    """Go back to an earlier snapshot, and stay there until `unpin`."""
    from anabranch_server.commands.following import carry_out
    from anabranch_wire.snapshots import Snapshot

    body: dict[str, object] = {}
    if version is not None:
        snapshot = Snapshot.parse(model or "", version)
        body["version"] = snapshot.version
        if "+" in version:
            body["delta"] = snapshot.delta
    carry_out("rollback", model, body, admin=admin, wait_s=wait_s, as_json=as_json)


def unpin(
    model: _Model = None,
    admin: _Admin = _ADMIN,
    wait_s: _Wait = _WAIT_S,
    as_json: _Json = False,
) -> None:
    """Release the hold of a rollback: the model follows its policy again."""
    from anabranch_server.commands.following import carry_out

    carry_out("unpin", model, {}, admin=admin, wait_s=wait_s, as_json=as_json)
