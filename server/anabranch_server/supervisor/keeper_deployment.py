"""The serving.yaml of one model: read where it has changed, kept where it is bad."""

from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import check_deployment
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_server.supervisor.keeper_plans import group_plan
from anabranch_server.supervisor.watching import SeenModel

__all__ = ["DeploymentFile"]


class DeploymentFile:
    """What a model's serving.yaml says. Belongs to the model's keeper.

    Args:
        workers: worker processes.
        cores: executors of a worker where a deployment names no number.

    Attributes:
        current: the last serving.yaml that could be used; the defaults where there is no such
            model and none was read before; None until either is known.
    """

    def __init__(self, workers: int, cores: int) -> None:
        self.current: Deployment | None = None
        self._workers = workers
        self._cores = cores
        self._settings: str | None = None

    def notice(self, seen: SeenModel | None) -> bool:
        """Take note of what the repository has; returns whether that is new, and to be read."""
        settings = None if seen is None else seen.settings
        is_new, self._settings = settings != self._settings, settings
        if seen is None and self.current is None:
            self.current = Deployment()
            return True
        return is_new

    def differs(self, seen: SeenModel | None) -> bool:
        """Whether the repository has another one than was taken note of."""
        return seen is not None and seen.settings != self._settings

    def read(self, seen: SeenModel) -> None:
        """Read it; what was read before stays where it is bad.

        Raises:
            AnabranchError: it cannot be used.
        """
        if seen.fault is not None:
            raise seen.fault
        deployment = read_yaml(seen.serving_yaml.encode(), Deployment, "serving.yaml")
        check_deployment(deployment)
        group_plan(deployment, self._workers, self._cores)
        self.current = deployment
