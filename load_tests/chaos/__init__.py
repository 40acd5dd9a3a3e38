"""Kills processes of a server under load, and says whether anything but the unavoidable failed."""

from chaos.holdings import Held, leaks
from chaos.judging import Complaint, Kill, Known, Victim, complaints
from chaos.killing import Outcome, Rules, kill_at_random
from chaos.stages import limited_to, staged_server
from chaos.subjects import REWRITTEN, TABLED, TELLING, Subject, requests_of

__all__ = [
    "REWRITTEN",
    "TABLED",
    "TELLING",
    "Complaint",
    "Held",
    "Kill",
    "Known",
    "Outcome",
    "Rules",
    "Subject",
    "Victim",
    "complaints",
    "kill_at_random",
    "leaks",
    "limited_to",
    "requests_of",
    "staged_server",
]
