"""The launcher: claims the ports, holds what is shared, keeps supervisor and workers running."""

from anabranch_server.launcher.restarts import RestartPolicy
from anabranch_server.launcher.running import run_launcher
from anabranch_server.launcher.starts import Programs

__all__ = ["Programs", "RestartPolicy", "run_launcher"]
