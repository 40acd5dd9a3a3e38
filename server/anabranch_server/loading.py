"""Loading what a repository has into a worker, once, at start.

A version that cannot be served is reported and left out; what else the model has serves in its
place. Nothing that lies in a repository ends the server.
"""

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from anabranch_model_store.memory import available_bytes
from anabranch_model_store.repository import ModelFolder, report_ignored, scan_repository
from anabranch_model_store.serving_yaml import Deployment, group_settings
from anabranch_model_store.supported import check_deployment
from anabranch_model_store.version_choice import default_version, select_versions
from anabranch_model_store.yaml_files import read_deployment
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_runtime.catalog import ServingState
from anabranch_runtime.served import ServedVersion
from anabranch_server.config import RepositoryConfig
from anabranch_server.describe import FailureView
from anabranch_server.load_failures import failure_reason
from anabranch_server.stillness import complete_versions, restless_models
from anabranch_server.worker import Worker
from anabranch_wire.errors import AnabranchError, Conflict, Internal, NotFound

if TYPE_CHECKING:
    from anabranch_model_store.preparation import PreparedVersion

__all__ = ["Loader"]

_log = logging.getLogger(__name__)

_SHOWN: Final = 20


class Loader:
    """Finds models and gives them to a worker. `run` owns a thread; the rest is safe from any.

    Args:
        repository: what to serve.
        worker: what serves it.
        cores: executors of a model whose deployment names no number.
    """

    def __init__(self, repository: RepositoryConfig, worker: Worker, cores: int) -> None:
        self._repository = repository
        self._worker = worker
        self._cores = cores
        self._stopping = threading.Event()
        self._failures: Mapping[str, FailureView] = MappingProxyType({})

    def failures(self) -> Mapping[str, FailureView]:
        """Return model name -> what went wrong with it last; an immutable value."""
        return self._failures

    def stop(self) -> None:
        """Ask `run` to return; it ends after the version at work."""
        self._stopping.set()

    def run(self) -> None:
        """Load every model; returns when all that can be served is."""
        try:
            scan = scan_repository(self._repository.path, self._repository.models)
        except AnabranchError as error:
            _log.error("%s", error.message, extra={"event": "repository_unreadable"})
            return
        report_ignored(scan.ignored, frozenset())
        for name in sorted({*scan.models, *(self._repository.models or ())}):
            self._worker.publish(name, ServingState({}))
            if name not in scan.models:
                self._failed(name, None, NotFound("the repository has no such model"))
        self._say_what_is_waited_for(scan.models.values())
        runner = OrtModelRunner()
        for folder in scan.models.values():
            if not self._stopping.is_set():
                self._load_model(folder, runner)

    def _say_what_is_waited_for(self, folders: Iterable[ModelFolder]) -> None:
        """Log why nothing happens for some seconds, where that is so."""
        settle_s = self._repository.settle_s
        if models := restless_models(folders, settle_s):
            _log.info(
                "waiting until the files of %s have lain still for %g s",
                f"model {models[0]}" if len(models) == 1 else f"{len(models)} models",
                settle_s,
                extra={"event": "settling", "models": models[:_SHOWN], "settle_s": settle_s},
            )

    def _load_model(self, folder: ModelFolder, runner: OrtModelRunner) -> None:
        """Load the versions that the policy names; broken ones make room for older ones."""
        try:
            deployment = read_deployment(folder.path)
            check_deployment(deployment)
        except AnabranchError as error:
            self._failed(folder.name, None, error)
            return
        available = set(complete_versions(folder, self._repository.settle_s, self._stopping))
        for number in folder.versions.keys() - available:
            changing = Conflict("there is no manifest, and the files keep changing")
            self._failed(folder.name, number, changing)
        loaded: dict[int, ServedVersion] = {}
        selection = select_versions(available, deployment.versions, deployment.labels)
        while (left := set(selection.load) - loaded.keys()) and not self._stopping.is_set():
            number = max(left)
            served = self._load_version(folder, number, deployment, runner)
            if served is None:
                available.discard(number)
            else:
                loaded[number] = served
            selection = select_versions(available, deployment.versions, deployment.labels)
        for absent in selection.missing:
            if absent not in folder.versions:
                self._failed(folder.name, absent, NotFound("named by serving.yaml, but not there"))
        labels, default_label = deployment.labels, deployment.traffic.default
        state = ServingState(
            versions=MappingProxyType(loaded),
            labels=labels,
            default=default_version(loaded, labels, default_label),
            default_label=default_label,
            required=deployment.required,
        )
        self._worker.publish(folder.name, state)

    def _load_version(
        self, folder: ModelFolder, number: int, deployment: Deployment, runner: OrtModelRunner
    ) -> ServedVersion | None:
        """Verify, prove, build and warm one version; None where it cannot be served."""
        # Takes half a second of imports, which the open ports need not wait for.
        from anabranch_model_store.preparation import prepare_version

        begun_s = time.monotonic()
        try:
            prepared = prepare_version(folder, number, deployment, runner, available_bytes())
            prepared_s = time.monotonic()
            served = self._warm(prepared)
        except AnabranchError as error:
            self._failed(folder.name, number, error)
            return None
        except Exception as fault:  # the edge of loading: one version never ends the others
            _log.exception("loading failed", extra={"event": "internal_error"})
            self._failed(folder.name, number, Internal(f"{type(fault).__name__} while loading"))
            return None
        warm_s = time.monotonic()
        _log.info(
            "model %s: version %s is loaded",
            folder.name,
            prepared.snapshot,
            extra={
                "event": "reload",
                "model": folder.name,
                "kind": "version",
                "version": number,
                "delta": 0,
                "result": "ok",
                "phase_ms": {
                    "verifying": round((prepared_s - begun_s) * 1000, 1),
                    "warming": round((warm_s - prepared_s) * 1000, 1),
                },
            },
        )
        return served

    def _warm(self, prepared: "PreparedVersion") -> ServedVersion:
        """Build a version and run its examples on every executor."""
        snapshot, deployment = prepared.snapshot, prepared.deployment
        for note in prepared.notes:
            _log.warning(
                "model %s: version %s: %s",
                snapshot.model,
                snapshot,
                note,
                extra={"event": "version_note", "model": snapshot.model},
            )
        group = self._worker.group(
            snapshot.model, group_settings(deployment, self._cores), deployment.executors.backend
        )
        return group.load(
            snapshot,
            prepared.model,
            prepared.examples,
            warm_rounds=deployment.warmup.rounds,
            description=prepared.meaning.description,
            user_inputs=prepared.user_inputs,
        )

    def _failed(self, model: str, version: int | None, error: AnabranchError) -> None:
        """Report what went wrong with a version, or with the model itself."""
        reason = failure_reason(error)
        failure = FailureView(time.time(), version, None, reason, error.message)
        self._failures = MappingProxyType({**self._failures, model: failure})
        _log.error(
            "model %s: %s%s",
            model,
            "" if version is None else f"version {version} is not served: ",
            error.message,
            extra={
                "event": "reload",
                "model": model,
                "kind": "version",
                "version": version,
                "delta": 0,
                "result": "failed",
                "reason": reason,
            },
        )
