"""Whether a version folder is whole and means what it says, found out without serving it."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from anabranch_graph_opt.example_inputs import ExampleInputs
from anabranch_graph_opt.parity.cases import ParityCase
from anabranch_graph_opt.parity.comparison import ParityBudget, ParityReport
from anabranch_graph_opt.running import Array, ModelRunner
from anabranch_model_store.built_graphs import BuiltGraphs
from anabranch_model_store.cut_comparison import compare_cut
from anabranch_model_store.folder_snapshots import folder_snapshot
from anabranch_model_store.graph_trials import GraphTrial
from anabranch_model_store.hashing import file_sha256
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.onnx_files import check_onnx_file
from anabranch_model_store.planned_versions import (
    NO_TABLES,
    PlannedVersion,
    is_planned,
    open_planned,
    serve_planned,
)
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.segment_cache import SegmentCache
from anabranch_model_store.serving_yaml import Deployment
from anabranch_model_store.version_contents import (
    find_onnx_file,
    malformed_graphs_refused,
    read_contents,
)
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_model_store.version_tables import read_tables
from anabranch_model_store.yaml_files import read_meaning
from anabranch_runtime.store import Segment
from anabranch_wire.errors import AnabranchError, NotFound

__all__ = ["CheckedFile", "Verification", "verify_folder"]

_NO_LIMIT: Final = 2**63 - 1
_SEGMENT: Final = ".seg"


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file of a version.

    Attributes:
        path: relative to the folder.
        bytes: its size.
        sha256: its digest; None where the manifest has none, and segments check themselves.
    """

    path: str
    bytes: int
    sha256: str | None


@dataclass(slots=True)
class Verification:
    """What was found; errors are added while it is looked for.

    Attributes:
        files: of the version, whose digests are those of the manifest.
        parity: what the comparison with the original gave; None where that is not there.
        errors: what is wrong, in words.
    """

    files: tuple[CheckedFile, ...] = ()
    parity: ParityReport | None = None
    errors: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.errors

    @contextmanager
    def part(self) -> Iterator[None]:
        """Add what a part of the work refuses to the errors."""
        try:
            yield
        except AnabranchError as error:
            self.errors.append(error.message)
        except OSError as error:
            self.errors.append(f"{error.filename or 'a file'}: {error.strerror or error}")


def verify_folder(folder: Path, runner: ModelRunner) -> Verification:
    """Check a version folder: files against manifest, checksums of segments, plan against graphs.

    Where the original lies in the folder of an optimised version, both are compared.

    Args:
        folder: of the version.
        runner: runs the original.

    Raises:
        NotFound: there is no such folder.
    """
    if not folder.is_dir():
        raise NotFound(f"{folder}: no such folder")
    found = Verification()
    with found.part():
        files = verify_version(folder, folder_snapshot(folder))
        found.files = tuple(
            CheckedFile(path, size, files.digests.get(path)) for path, size in files.bytes.items()
        )
        for path in files.bytes:
            if path.endswith(_SEGMENT):
                with found.part():
                    _verify_segment(files, path)
        meaning = read_meaning(files, folder.absolute().parent)
        with found.part():
            if is_planned(files):
                found.parity = _planned(files, meaning, runner, found.errors)
            else:
                _whole(files, meaning)
    return found


def _verify_segment(files: VersionFiles, path: str) -> None:
    try:
        Segment.open(files.path(path)).verify()
    except AnabranchError as error:
        raise type(error)(f"{path}: {error.message}") from None


def _whole(files: VersionFiles, meaning: ModelMeaning) -> None:
    """Check a version as it was exported as far as that goes without running it."""
    onnx_file = find_onnx_file(files, meaning)
    tables = read_tables(files, meaning)
    with malformed_graphs_refused(onnx_file):
        read_contents(onnx_file, files, meaning, tables)


def _planned(
    files: VersionFiles, meaning: ModelMeaning, runner: ModelRunner, errors: list[str]
) -> ParityReport | None:
    """Check an optimised version by running it, and against the original where that is there."""
    with tempfile.TemporaryDirectory(prefix="anabranch-verify-") as scratch:
        settings = StoreSettings(
            segments=SegmentCache(Path(scratch) / "segments", _NO_LIMIT),
            graphs=BuiltGraphs(Path(scratch) / "graphs", _NO_LIMIT),
        )
        planned = open_planned(files, meaning, settings)
        with malformed_graphs_refused(planned.contents.onnx_file):
            serve_planned(planned, files, meaning, Deployment())
            report = _compared(planned, files, meaning, runner)
    if report is not None and not report.ok:
        errors.append(f"it answers differently than the original: {report.difference}")
    return report


def _compared(
    planned: PlannedVersion, files: VersionFiles, meaning: ModelMeaning, runner: ModelRunner
) -> ParityReport | None:
    source = planned.plan.source
    if source.file not in files:
        return None
    if (files.digests.get(source.file) or file_sha256(files.path(source.file))) != source.sha256:
        raise NotFound(f"{source.file} is another file than the one that the plan was made from")
    custom = "custom_ops" in meaning.optimize.allow
    onnx_file = check_onnx_file(files, source.file, allow_custom_ops=custom)
    contents = read_contents(onnx_file, files, meaning, NO_TABLES)
    model, examples = GraphTrial(contents, meaning, Deployment(), runner).run(None, NO_TABLES)
    budget = meaning.optimize.budget

    def original(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        return runner.run(onnx_file.path, inputs)

    with planned.trial() as trial:
        return compare_cut(
            planned.plan,
            trial,
            original,
            ExampleInputs(contents.signature, contents.graph, contents.axes),
            [ParityCase(each.name, each.inputs) for each in examples],
            model.rows,
            ParityBudget(budget.max_abs_diff, budget.min_rank_agreement),
        )
