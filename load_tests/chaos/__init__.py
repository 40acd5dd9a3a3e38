"""Kills processes of a server under load, and says whether anything but the unavoidable failed."""

from chaos.holdings import Held, leaks
from chaos.judging import Complaint, Kill, Known, Victim, complaints
from chaos.killing import Outcome, Rules, kill_at_random
from chaos.producers import Producer, Published
from chaos.restarts import forgotten
from chaos.stages import limited_to, restarted_server, staged_server
from chaos.subjects import DELTAS, REWRITTEN, TABLED, TELLING, Subject, requests_of

__all__ = [
    "DELTAS",
    "REWRITTEN",
    "TABLED",
    "TELLING",
    "Complaint",
    "Held",
    "Kill",
    "Known",
    "Outcome",
    "Producer",
    "Published",
    "Rules",
    "Subject",
    "Victim",
    "complaints",
    "forgotten",
    "kill_at_random",
    "leaks",
    "limited_to",
    "requests_of",
    "restarted_server",
    "staged_server",
]
