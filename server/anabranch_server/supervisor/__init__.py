"""The process that decides what is served: repository, epochs, admin and metrics ports."""

from anabranch_server.supervisor.single import Supervisor

__all__ = ["Supervisor"]
