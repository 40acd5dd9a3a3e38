"""Errors of the closed tree, as messages between processes carry them: class name and text."""

from types import MappingProxyType
from typing import Final

from anabranch_wire import errors
from anabranch_wire.errors import AnabranchError, Internal

__all__ = ["error_of"]

_KINDS: Final = MappingProxyType(
    {
        name: kind
        for name in errors.__all__
        if isinstance(kind := getattr(errors, name), type)
        and issubclass(kind, AnabranchError)
        and kind is not AnabranchError
    }
)


def error_of(kind: str, text: str) -> AnabranchError:
    """Return the error that another process met.

    Args:
        kind: name of its class; one that is not of the tree becomes `Internal`.
        text: its message.
    """
    return _KINDS.get(kind, Internal)(text)
