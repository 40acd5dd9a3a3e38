"""`anabranch`, but its supervisors die where `die_at` in the run folder tells them to.

The file holds the name of a step of a switch; it is removed by the one that dies of it.
"""

from anabranch_server import launcher
from anabranch_server.cli import main
from anabranch_server.config import ServeConfig

if __name__ == "__main__":
    run_launcher = launcher.run_launcher

    def launch(config: ServeConfig) -> int:
        """Run the launcher with such supervisors."""
        supervisor = "anabranch_testing.processes.mortal_supervisor"
        return run_launcher(config, launcher.Programs(supervisor=supervisor))

    setattr(launcher, "run_launcher", launch)  # noqa: B010 - of another type, on purpose
    main()
