"""`anabranch`, but its supervisors rewrite all marked rows again and again; see `marked_rows`.

The last marker that was decided is in the file `marker` of the run folder. A supervisor that is
started anew begins with it, as one does that replays what was made durable.
"""

from anabranch_server import launcher
from anabranch_server.cli import main
from anabranch_server.config import ServeConfig

if __name__ == "__main__":
    run_launcher = launcher.run_launcher

    def launch(config: ServeConfig) -> int:
        """Run the launcher with such supervisors."""
        supervisor = "anabranch_testing.processes.rewriting_supervisor"
        return run_launcher(config, launcher.Programs(supervisor=supervisor))

    setattr(launcher, "run_launcher", launch)  # noqa: B010 - of another type, on purpose
    main()
