"""When a call is sent where, how often, and when it is given up: pure code on plain values.

No clock, no socket, no randomness of its own: times are arguments, in seconds of any clock that
never goes back, and chance is a function that is handed in. The four faces of the client (blocking
and asyncio, HTTP and gRPC) share it.
"""

from anabranch_client.policy.balancing import EjectionRules
from anabranch_client.policy.courses import (
    Attempt,
    CallCounts,
    CallPolicy,
    Course,
    Fail,
    Start,
    Wait,
)
from anabranch_client.policy.failures import AttemptFailed, Blame, Failure, failure_of
from anabranch_client.policy.hedging import HedgeRules
from anabranch_client.policy.retrying import RetryRules

__all__ = [
    "Attempt",
    "AttemptFailed",
    "Blame",
    "CallCounts",
    "CallPolicy",
    "Course",
    "EjectionRules",
    "Fail",
    "Failure",
    "HedgeRules",
    "RetryRules",
    "Start",
    "Wait",
    "failure_of",
]
