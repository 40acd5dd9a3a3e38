"""An open-loop load generator: fixed arrival times, latency from the time a request was due."""

from openloop.answers import Answer, Outcome, Reply
from openloop.arrivals import Arrivals
from openloop.background import Background, measure
from openloop.histogram import Histogram, Summary
from openloop.http_link import HttpTransport, post
from openloop.loop import run
from openloop.plan import Plan, Result
from openloop.tally import Counts

__all__ = [
    "Answer",
    "Arrivals",
    "Background",
    "Counts",
    "Histogram",
    "HttpTransport",
    "Outcome",
    "Plan",
    "Reply",
    "Result",
    "Summary",
    "measure",
    "post",
    "run",
]
