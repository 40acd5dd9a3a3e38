"""Client of the anabranch inference server."""

from anabranch_client.async_client import AsyncClient
from anabranch_client.client import Client
from anabranch_client.http_errors import error_from_http
from anabranch_client.infer_bodies import Scores
from anabranch_client.options import ClientOptions
from anabranch_client.policy.balancing import EjectionRules
from anabranch_client.policy.budgets import BudgetRules
from anabranch_client.policy.courses import CallCounts
from anabranch_client.policy.hedging import HedgeRules
from anabranch_client.policy.retrying import RetryRules
from anabranch_client.rankings import Explanation, Missed, Ranking
from anabranch_client.requests import ModelMetadata

__all__ = [
    "AsyncClient",
    "BudgetRules",
    "CallCounts",
    "Client",
    "ClientOptions",
    "EjectionRules",
    "Explanation",
    "HedgeRules",
    "Missed",
    "ModelMetadata",
    "Ranking",
    "RetryRules",
    "Scores",
    "error_from_http",
]
