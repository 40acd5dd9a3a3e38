"""Kills processes of a server under load, and says whether anything but the unavoidable failed."""

from chaos.judging import Complaint, Kill, Victim, complaints
from chaos.killing import MODEL, Outcome, Rules, kill_at_random, request_of

__all__ = [
    "MODEL",
    "Complaint",
    "Kill",
    "Outcome",
    "Rules",
    "Victim",
    "complaints",
    "kill_at_random",
    "request_of",
]
