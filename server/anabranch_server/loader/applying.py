"""One request of a supervisor: from the deltas of a version to `Applied` or `Refused`.

What only changes rows is answered without the modules of the optimiser and of ONNX Runtime.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from anabranch_model_store.cache_folders import RUNS
from anabranch_model_store.deltas.application import DeltaCaches, apply_deltas
from anabranch_model_store.deltas.compaction import Compactor
from anabranch_model_store.deltas.faults import Fault
from anabranch_model_store.deltas.origins import Origin
from anabranch_model_store.deltas.run_cache import RunCache
from anabranch_model_store.deltas.targets import Run
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_server.loader.delta_targets import delta_target, read_meaning_of, updated_plan
from anabranch_server.loader.phases import Phases
from anabranch_server.processes.loader_messages import (
    Applied,
    ApplyDeltas,
    DeltaFault,
    Progress,
    Refused,
)
from anabranch_wire.errors import AnabranchError, TooLarge, Unavailable

__all__ = ["DeltaDesk"]

_log = logging.getLogger(__name__)


class DeltaDesk:
    """Applies deltas, and merges their runs in between. Used by one thread.

    Args:
        cache: the server's cache folder.
    """

    def __init__(self, cache: Path) -> None:
        runs = RunCache(cache / RUNS.path, RUNS.limit_bytes)
        self._caches = DeltaCaches(cache, runs)
        self._compactor = Compactor(runs)

    def close(self) -> None:
        """Give up what is merged in between."""
        self._compactor.close()

    def apply(
        self, request: ApplyDeltas, say: Callable[[Progress], None], origin: Origin
    ) -> Applied | Refused:
        """Find out what the next deltas of a version make of it.

        Args:
            request: which deltas.
            say: told what begins.
            origin: brings their files onto this machine.
        """
        number = request.number
        with self._compactor.held_up():
            try:
                answer = self._apply(request, say, origin)
            except AnabranchError as error:
                return Refused(number, _kind(error), error.message)
            except OSError as error:  # it may pass: it is tried again after a while
                text = f"deltas cannot be read: {error.strerror}"
                return Refused(number, Unavailable.__name__, text)
            except MemoryError:
                text = "deltas need more memory than there is to look at them"
                return Refused(number, TooLarge.__name__, text)
            except Exception as fault:  # the edge of loading: one delta never ends the others
                _log.exception("applying failed", extra={"event": "internal_error"})
                text = f"{type(fault).__name__} while deltas were looked at"
                return Refused(number, "Internal", text)
        if answer.version.store is not None:
            runs = [Run(Path(run.path), run.first, run.last) for run in answer.version.runs]
            self._compactor.offer(answer.version.identity, runs)
        return answer

    def _apply(
        self, request: ApplyDeltas, say: Callable[[Progress], None], origin: Origin
    ) -> Applied:
        phases = Phases(lambda phase: say(Progress(request.number, phase)))
        phases.begin("fetching")
        self._caches.runs.prune(request.in_use)
        version = Path(request.version_path)
        deployment = read_yaml(request.serving_yaml.encode(), Deployment, "serving.yaml")
        meaning = read_meaning_of(version, Path(request.model_path))
        target = delta_target(request.plan, version, meaning, deployment)
        found = apply_deltas(target, request.upto, origin, self._caches, phases.begin)
        plan = updated_plan(request.plan, found)
        if plan.updates != request.plan.updates:
            in_use = (*request.in_use, *plan.kept_files)
            _prune_graphs(self._caches.folder, in_use, request.since)
        return Applied(
            request.number,
            plan,
            phases.end(),
            found.upserts,
            found.deletes,
            found.bytes,
            None if found.fault is None else _fault(found.fault),
        )


def _prune_graphs(cache: Path, in_use: tuple[str, ...], since: float | None) -> None:
    """Keep small what new weights have left behind; their modules are there already."""
    from anabranch_server.loader.building import GraphBuilder
    from anabranch_server.loader.row_cache import prune_weights

    GraphBuilder(cache).prune(in_use, since)
    prune_weights(cache, in_use, since)


def _fault(fault: Fault) -> DeltaFault:
    return DeltaFault(fault.sequence, _kind(fault.error), fault.reason, fault.error.message)


def _kind(error: AnabranchError) -> str:
    return type(error).__name__
