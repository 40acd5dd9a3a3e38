"""Optimising a model ahead of time: from an ONNX file to a complete version folder and its report.

The folder appears at once and whole, after the optimised model was compared with the original.
"""

import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec import structs

from anabranch_graph_opt.parity.comparison import ParityBudget
from anabranch_graph_opt.reporting import report as reports
from anabranch_graph_opt.reporting.making import Outcome, graph_of, make_report
from anabranch_graph_opt.reporting.page import html_report
from anabranch_graph_opt.reporting.report import GraphRole, Report
from anabranch_graph_opt.running import ModelRunner
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.containment import resolve_file
from anabranch_model_store.cut_tables import SEGMENT_FILE
from anabranch_model_store.cut_versions import CutVersion, WholeVersion, cut_version
from anabranch_model_store.folder_names import FolderName, folder_name
from anabranch_model_store.graph_structures import structure_hash
from anabranch_model_store.graph_trials import GraphTrial
from anabranch_model_store.item_tables import check_item_table
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.onnx_files import OnnxFile, check_onnx_file, external_locations
from anabranch_model_store.planned_versions import NO_TABLES
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.ranking_plans import ranking_plan
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.supported import check_meaning
from anabranch_model_store.version_contents import (
    VersionContents,
    graph_digest,
    graph_source,
    malformed_graphs_refused,
    read_contents,
)
from anabranch_model_store.version_files import VersionFiles
from anabranch_model_store.yaml_documents import read_yaml
from anabranch_publish.staging import Staging
from anabranch_wire import manifest, plan
from anabranch_wire.errors import Conflict, InvalidInput, NotFound, Unsupported
from anabranch_wire.manifest import Manifest, TableFile

__all__ = ["OptimizeRequest", "optimize_folder"]

_MODEL_YAML: Final = "model.yaml"
_WHOLE: Final = "model.onnx"
_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """What is to be optimised.

    Attributes:
        model: the ONNX file as exported; external data lies beside it.
        folder: where the version folder is to be; missing, or empty.
        model_yaml: what its inputs, tables and outputs mean; None: nothing is known. Vocabularies
            and item tables that it names lie beside it, and go into the folder.
        min_table_bytes: smaller tables stay in the graph; None: as model.yaml says.
        keeps_original: whether the original goes into the folder too, so that it can be compared
            with again.
    """

    model: Path
    folder: Path
    model_yaml: Path | None = None
    min_table_bytes: int | None = None
    keeps_original: bool = False


def optimize_folder(
    request: OptimizeRequest,
    runner: ModelRunner,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Optimise a model, compare it with the original, and write what is to be served.

    Args:
        request: the model, and where the folder is to be.
        runner: runs the original.
        on_bytes: told how many bytes of how many of the tables are written.

    Returns:
        the report, which lies in the folder as well.

    Raises:
        Conflict: the folder has something in it.
        NotFound: there is no such file.
        InvalidInput: a file is malformed, or the optimised model answers differently.
        Unsupported: it needs what this release does not have.
        Unavailable, OSError: the folder cannot be written.
    """
    begun = time.monotonic()
    folder = request.folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Conflict(f"{request.folder} has something in it: name a folder that is not there yet")
    meaning = _meaning(request)
    files = _files_of(request.model)
    custom = "custom_ops" in meaning.optimize.allow
    onnx_file = check_onnx_file(files, request.model.name, allow_custom_ops=custom)
    with (
        _parents(folder),
        tempfile.TemporaryDirectory(prefix=".optimizing-", dir=folder.parent) as scratch,
        Staging(folder.parent) as staging,
    ):
        settings = StoreSettings(
            segments=SegmentCache(Path(scratch) / "segments", _NO_LIMIT),
            graphs=BuiltGraphs(Path(scratch) / "graphs", _NO_LIMIT),
            on_bytes=on_bytes,
        )
        with malformed_graphs_refused(onnx_file):
            contents = read_contents(onnx_file, files, meaning, NO_TABLES)
            named = _named_files(request, meaning)
            ranking_plan(meaning, contents, named, None)
            check_item_table(meaning, named)
            trial = GraphTrial(contents, meaning, Deployment(), runner)
            model, examples = trial.run(None, NO_TABLES)
            cut = cut_version(
                contents,
                graph_source(onnx_file, files),
                graph_digest(onnx_file, files),
                meaning,
                settings,
                model,
                examples,
                runner,
            )
        if request.model_yaml is not None:
            staging.copy(request.model_yaml, _MODEL_YAML)
        for file in named.bytes:
            staging.copy(named.path(file), file)
        writing = _Writing(request, staging, contents, onnx_file, meaning)
        if isinstance(cut, CutVersion):
            outcome = writing.cut(cut)
            structure, model_file = cut.store.plan.structure_hash, cut.store.plan.graphs.dense
        else:
            outcome = writing.whole(cut)
            structure, model_file = structure_hash(onnx_file.path), _WHOLE
        name = folder_name(folder, request.model.stem)
        report = make_report(
            name.model, outcome, structure, time.monotonic() - begun, _peak_bytes()
        )
        _write(staging, reports.FILE_NAME, reports.encode(report))
        _write(staging, reports.PAGE_NAME, html_report(report).encode())
        document = _manifest(staging, name, outcome, structure, model_file)
        with suppress(FileNotFoundError):
            folder.rmdir()  # it is empty; from now on until it is whole there is none
        staging.publish_as(folder.name, manifest.FILE_NAME, manifest.encode(document))
    return report


@dataclass(frozen=True, slots=True, eq=False)
class _Writing:
    """Puts what was made into a folder that nobody sees yet."""

    request: OptimizeRequest
    staging: Staging
    contents: VersionContents
    onnx_file: OnnxFile
    meaning: ModelMeaning

    def cut(self, cut: CutVersion) -> Outcome:
        """Write plan, graphs and rows."""
        parts = cut.model.cut
        assert parts is not None
        roles: list[tuple[GraphRole, Path]] = [("dense", parts.dense.path)]
        if parts.prelude is not None:
            roles.insert(0, ("prelude", parts.prelude.path))
        if parts.user is not None:
            roles.insert(-1, ("user", parts.user.graph.path))
        graphs = []
        for role, path in roles:
            graphs.append(graph_of(role, path))
            self._move(path, path.name)
            beside = path.with_name(f"{path.name}.data")
            if beside.is_file():
                self._move(beside, beside.name)
        self._move(cut.store.segment, SEGMENT_FILE)
        _write(self.staging, plan.FILE_NAME, plan.encode(cut.store.plan))
        if self.request.keeps_original:
            self._copy_original(self.request.model.name)
        notes = tuple(filter(None, (*cut.remarks, cut.note)))
        return self._outcome(cut, cut.store.plan, graphs, notes)

    def whole(self, whole: WholeVersion) -> Outcome:
        """Write the graph as it was exported: there is nothing to look up beside it."""
        self._copy_original(_WHOLE)
        graph = structs.replace(graph_of("whole", self.onnx_file.path), file=_WHOLE)
        size = structs.replace(graph, bytes=self.onnx_file.bytes)
        return self._outcome(whole, None, [size], tuple(filter(None, (whole.note,))))

    def _outcome(
        self,
        made: CutVersion | WholeVersion,
        found: plan.Plan | None,
        graphs: Sequence[reports.ReportedGraph],
        notes: Sequence[str],
    ) -> Outcome:
        budget = self.meaning.optimize.budget
        weights = self.contents.graph.graph.initializers
        tensors = {one.table: weights[one.table].const_value for one in made.verdicts}
        return Outcome(
            inputs=self.contents.signature.inputs,
            verdicts=made.verdicts,
            table_bytes={n: 0 if t is None else t.nbytes for n, t in tensors.items()},
            parity=made.parity if isinstance(made, CutVersion) else None,
            budget=ParityBudget(budget.max_abs_diff, budget.min_rank_agreement),
            plan=found,
            graphs=graphs,
            notes=notes,
        )

    def _copy_original(self, name: str) -> None:
        self.staging.copy(self.request.model, name)
        for location in external_locations(self.request.model):
            self.staging.copy(self.request.model.parent / location, location)

    def _move(self, source: Path, name: str) -> None:
        shutil.move(source, self.staging.reserve(name))
        self.staging.adopt(name)


def _meaning(request: OptimizeRequest) -> ModelMeaning:
    """Return the model.yaml that holds; what answers differently is refused, whatever it says."""
    meaning = ModelMeaning()
    if request.model_yaml is not None:
        try:
            text = request.model_yaml.read_bytes()
        except OSError as error:
            raise NotFound(f"{request.model_yaml}: {error.strerror}") from None
        meaning = read_yaml(text, ModelMeaning, _MODEL_YAML)
    check_meaning(meaning)
    if meaning.lookups:
        raise Unsupported("model.yaml: lookups; only tables inside the graph are optimised")
    if meaning.optimize.split == "off":
        raise InvalidInput("model.yaml: optimize.split: off leaves nothing to be done")
    settings = structs.replace(meaning.optimize, on_difference="refuse")
    if request.min_table_bytes is not None:
        settings = structs.replace(settings, min_table_bytes=request.min_table_bytes)
    return structs.replace(meaning, optimize=settings)


def _files_of(model: Path) -> VersionFiles:
    """Return an ONNX file and the files that it wants beside it as if they were a version."""
    folder = model.absolute().parent.resolve()
    sizes: dict[str, int] = {}
    for name in (model.name, *external_locations(model)):
        with suppress(OSError, ValueError):  # what is missing is told when the file is checked
            sizes[name] = (folder / name).stat().st_size
    return VersionFiles(folder, None, "", MappingProxyType(sizes), MappingProxyType({}))


def _named_files(request: OptimizeRequest, meaning: ModelMeaning) -> VersionFiles:
    """Return the files that model.yaml names, which lie beside it, as if they were a version."""
    place = request.model if request.model_yaml is None else request.model_yaml
    folder = place.absolute().parent.resolve()
    sizes = {name: resolve_file(folder, name).stat().st_size for name in meaning.files}
    return VersionFiles(folder, None, "", MappingProxyType(sizes), MappingProxyType({}))


def _manifest(
    staging: Staging, name: FolderName, outcome: Outcome, structure: str, model_file: str
) -> Manifest:
    tables = () if outcome.plan is None else outcome.plan.tables
    return Manifest(
        format=1,
        kind="version",
        model=name.model,
        version=name.version,
        producer=f"anabranch {metadata.version('anabranch')}",
        created=time.time(),
        model_file=model_file,
        structure_hash=structure,
        tables=tuple(
            TableFile(
                name=table.name,
                file=table.file,
                rows=table.rows,
                dim=table.dim,
                dtype=table.dtype,
                key_dtype="int64",
            )
            for table in tables
        ),
        files=staging.files,
    )


def _write(staging: Staging, name: str, data: bytes) -> None:
    staging.reserve(name).write_bytes(data)
    staging.adopt(name)


@contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the folders above one; where the block fails, those that were made go again."""
    missing = [place for place in folder.parents if not place.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for place in missing:
            with suppress(OSError):  # not if somebody else has put something there
                place.rmdir()
        raise


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
