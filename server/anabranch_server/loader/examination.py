"""One request of a supervisor: from a version folder to `Found` or `Refused`."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch_model_store.deltas.origins import LocalOrigin, Origin
from anabranch_model_store.memory import OutOfRoom
from anabranch_model_store.preparation import prepare_version
from anabranch_model_store.repository import ModelFolder, VersionFolder
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_runtime.backends.ort_runner import OrtModelRunner
from anabranch_server.loader.building import GraphBuilder
from anabranch_server.loader.measuring import batch_costs
from anabranch_server.loader.phases import Phases
from anabranch_server.loader.row_cache import ByteCount, RowCache
from anabranch_server.loader.version_plans import update_plan, version_plan
from anabranch_server.processes.loader_messages import Found, LoadVersion, Progress, Refused
from anabranch_wire.errors import AnabranchError, TooLarge, Unavailable
from anabranch_wire.manifest import FILE_NAME
from anabranch_wire.names import ModelName

__all__ = ["examine"]

_log = logging.getLogger(__name__)


_HERE: Final = LocalOrigin()


def examine(
    request: LoadVersion,
    say: Callable[[Progress], None],
    builder: GraphBuilder,
    rows: RowCache,
    origin: Origin = _HERE,
) -> Found | Refused:
    """Find out whether a version can be served.

    Args:
        request: which version.
        say: told what begins, and how far it is.
        builder: of the graph that workers run.
        rows: keeps the rows that it looks up.
        origin: brings the version's files onto this machine.
    """
    phases = Phases(lambda phase: say(Progress(request.number, phase)))
    counting = ByteCount(
        lambda done, total: say(Progress(request.number, "importing", done, total))
    )
    fetching = ByteCount(lambda done, total: say(Progress(request.number, "fetching", done, total)))
    try:
        deployment = read_yaml(request.serving_yaml.encode(), Deployment, "serving.yaml")
        builder.prune(request.in_use, request.since)
        rows.prune(request.in_use, request.since)
        if not isinstance(origin, LocalOrigin):
            phases.begin("fetching")
        folder = origin.version(Path(request.version_path), fetching)
        runner = OrtModelRunner()  # one for each request, so that no session outlives it
        prepared = prepare_version(
            _model_folder(request, folder),
            request.version,
            deployment,
            runner,
            request.available_bytes,
            phases.begin,
            rows.settings(counting),
        )
        phases.begin("building")
        built = builder.build(prepared, runner)
        phases.begin("warming")
        plan = version_plan(built, batch_costs(built), update_plan(prepared))
    except OutOfRoom as short:
        return Refused(request.number, TooLarge.__name__, short.message, short.tables)
    except AnabranchError as error:
        return Refused(request.number, type(error).__name__, error.message)
    except OSError as error:  # it may pass: the version is tried again after a while
        return Refused(
            request.number, Unavailable.__name__, f"the version cannot be read: {error.strerror}"
        )
    except MemoryError:
        text = "the version needs more memory than there is to look at it"
        return Refused(request.number, TooLarge.__name__, text)
    except Exception as fault:  # the edge of loading: one version never ends the others
        _log.exception("loading failed", extra={"event": "internal_error"})
        text = f"{type(fault).__name__} while the version was looked at"
        return Refused(request.number, "Internal", text)
    return Found(request.number, plan, phases.end())


def _model_folder(request: LoadVersion, folder: Path) -> ModelFolder:
    version = VersionFolder(request.version, folder, (folder / FILE_NAME).is_file())
    return ModelFolder(
        ModelName(request.model), Path(request.model_path), {request.version: version}
    )
