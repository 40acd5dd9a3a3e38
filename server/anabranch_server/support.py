"""Settings that this release reads but does not act on yet.

What someone would rely on (protection, say) is refused when it is set; what merely
tunes a part that does not exist yet is accepted and named once in the log.
"""

from collections.abc import Mapping
from typing import Final

from anabranch_wire.errors import Unsupported

__all__ = ["NOT_SUPPORTED", "WITHOUT_EFFECT", "check_supported", "notes_on"]

NOT_SUPPORTED: Final[Mapping[str, str]] = {
    "auth.token_file": "tokens are not supported yet: restrict who reaches the port instead",
    "auth.admin_token_file": "tokens are not supported yet: keep the admin port on loopback",
    "tls.cert_file": "TLS is not supported yet: end it in a proxy before the server",
    "tls.key_file": "TLS is not supported yet: end it in a proxy before the server",
    "tls.client_ca_file": "TLS is not supported yet: end it in a proxy before the server",
    "grpc_engine": "only the grpcio engine is supported yet",
    "gpu.standby_worker": "GPU workers are not supported yet",
}
"""Dotted name -> why a value other than the default is refused."""

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "switch.orphan_s": "deltas are not applied",
}
"""Dotted name -> why changing it does nothing in this release."""


def check_supported(changed: Mapping[str, str]) -> None:
    """Refuse what this release cannot do.

    Args:
        changed: dotted names of the settings that differ from their defaults, and how whoever set
            them calls them (`--grpc-engine`, `ANABRANCH_TLS__CERT_FILE`).

    Raises:
        Unsupported: one of them asks for something that is not there.
    """
    for name, spelling in changed.items():
        if name in NOT_SUPPORTED:
            raise Unsupported(f"{spelling}: {NOT_SUPPORTED[name]}")


def notes_on(changed: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each changed setting that has no effect; `changed` as above."""
    return tuple(
        f"{spelling} has no effect in this release: {WITHOUT_EFFECT[name]}"
        for name, spelling in changed.items()
        if name in WITHOUT_EFFECT
    )
