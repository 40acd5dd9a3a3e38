"""The closed error tree of anabranch: every failure that a caller, an operator or a log may see.

Kinds are by who can act. Each class carries its wire statuses as plain attributes, so that only the
front ends translate and no package needs a web framework to raise. The statuses are those of the
project's contracts (HTTP status, gRPC status name)::

    AnabranchError
    |-- InvalidInput          400  INVALID_ARGUMENT     the caller sent something malformed
    |   |-- UnsupportedMedia  415  INVALID_ARGUMENT     a content type or encoding nobody reads here
    |   `-- Mismatch          400  INVALID_ARGUMENT     a version is not what its own proof says
    |-- Unauthenticated       401  UNAUTHENTICATED      no token, or a wrong one
    |-- PermissionDenied      403  PERMISSION_DENIED    a right token at the wrong door
    |-- NotFound              404  NOT_FOUND            model, version, label, table, route
    |-- MethodNotAllowed      405  UNIMPLEMENTED        the route exists, the verb does not
    |-- Conflict              409  ABORTED              sequence taken, operation already running
    |-- TooLarge              413  RESOURCE_EXHAUSTED   a limit was passed
    |-- Cancelled             499  CANCELLED            the caller left
    |-- Internal              500  INTERNAL             our fault
    |-- Corrupt               500  DATA_LOSS            a file or segment is damaged
    |   `-- Unproven          500  DATA_LOSS            a store sends others than are published
    |-- Unsupported           501  UNIMPLEMENTED        a known protocol feature we do not have
    |-- Overloaded            503  RESOURCE_EXHAUSTED   queue full; try again after `retry_after_s`
    |-- Unavailable           503  UNAVAILABLE          not loaded, draining, executor lost
    |   `-- DeviceLost        503  UNAVAILABLE          a GPU answers nothing any more
    `-- DeadlineExceeded      504  DEADLINE_EXCEEDED    too late to be worth computing
"""

from typing import ClassVar

__all__ = [
    "AnabranchError",
    "Cancelled",
    "Conflict",
    "Corrupt",
    "DeadlineExceeded",
    "DeviceLost",
    "Internal",
    "InvalidInput",
    "MethodNotAllowed",
    "Mismatch",
    "NotFound",
    "Overloaded",
    "PermissionDenied",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "Unproven",
    "Unsupported",
    "UnsupportedMedia",
]


class AnabranchError(Exception):
    """Root of the tree; never raised itself.

    Attributes:
        http: status on every HTTP door.
        grpc: name of the gRPC status code.
    """

    http: ClassVar[int] = 500
    grpc: ClassVar[str] = "INTERNAL"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r})"


class InvalidInput(AnabranchError):
    """Malformed, or a wrong name, dtype, shape or value."""

    http = 400
    grpc = "INVALID_ARGUMENT"


class UnsupportedMedia(InvalidInput):
    """A content type or content encoding that this door does not read."""

    http = 415


class Mismatch(InvalidInput):
    """A version makes other keys or scores than the proof that it brings along says."""


class Unauthenticated(AnabranchError):
    """No token, or a wrong one."""

    http = 401
    grpc = "UNAUTHENTICATED"


class PermissionDenied(AnabranchError):
    """A right token at the wrong door, or a call this door never allows."""

    http = 403
    grpc = "PERMISSION_DENIED"


class NotFound(AnabranchError):
    """No such model, version, label, table or route."""

    http = 404
    grpc = "NOT_FOUND"


class MethodNotAllowed(AnabranchError):
    """The route exists, but not with this verb."""

    http = 405
    grpc = "UNIMPLEMENTED"


class Conflict(AnabranchError):
    """Taken already, built on the wrong base, or an operation is already running."""

    http = 409
    grpc = "ABORTED"


class TooLarge(AnabranchError):
    """A configured limit was passed; the message names the limit and its value."""

    http = 413
    grpc = "RESOURCE_EXHAUSTED"


class Cancelled(AnabranchError):
    """The caller left before the answer was ready."""

    http = 499
    grpc = "CANCELLED"


class Internal(AnabranchError):
    """A fault of the server itself."""

    http = 500
    grpc = "INTERNAL"


class Corrupt(AnabranchError):
    """A file or segment is damaged."""

    http = 500
    grpc = "DATA_LOSS"


class Unproven(Corrupt):
    """A store sends nothing, or other bytes than were published; later it may send the right ones.

    A replica that is behind does so, and whatever damages bytes on their way.
    """


class Unsupported(AnabranchError):
    """A known protocol feature that this server does not have."""

    http = 501
    grpc = "UNIMPLEMENTED"


class Overloaded(AnabranchError):
    """The server refuses now and would rather be asked again later.

    Attributes:
        retry_after_s: advised wait in seconds, greater than 0.
    """

    http = 503
    grpc = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(AnabranchError):
    """Known, but not able to answer now: not loaded, draining, executor lost."""

    http = 503
    grpc = "UNAVAILABLE"


class DeviceLost(Unavailable):
    """A GPU, or this process' hold on it, is gone: whatever is tried on it fails from now on."""


class DeadlineExceeded(AnabranchError):
    """The deadline passed before the answer was ready; nothing more is computed for it."""

    http = 504
    grpc = "DEADLINE_EXCEEDED"
