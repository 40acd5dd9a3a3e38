"""What the files of a version say, each by itself and together, without running anything.

A server reads it before it tries a version; whoever publishes one reads it before anybody sees it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import onnx_ir as ir

from anabranch_graph_opt.model_source import open_model
from anabranch_graph_opt.row_axes import InputAxis, RowAxes, resolve_row_axes
from anabranch_graph_opt.signature import Signature, read_signature
from anabranch_model_store.golden.cases import read_cases
from anabranch_model_store.graph_names import check_names, declared_axes
from anabranch_model_store.graph_structures import structure_hash
from anabranch_model_store.hashing import file_sha256
from anabranch_model_store.item_tables import check_item_table
from anabranch_model_store.lookup_plans import compile_lookups, user_features
from anabranch_model_store.model_yaml import ModelMeaning
from anabranch_model_store.onnx_files import OnnxFile, check_onnx_file
from anabranch_model_store.ranking_plans import ranking_plan
from anabranch_model_store.table_files import declared_tables
from anabranch_model_store.user_inputs import user_inputs
from anabranch_model_store.version_files import VersionFiles, verify_version
from anabranch_model_store.version_tables import VersionTables, read_tables
from anabranch_model_store.warmup_files import Sample, read_samples
from anabranch_model_store.yaml_files import read_meaning
from anabranch_runtime.lookups import Lookups, lookups_of
from anabranch_wire.errors import InvalidInput, NotFound
from anabranch_wire.names import ModelName
from anabranch_wire.plan import Source
from anabranch_wire.snapshots import Snapshot

__all__ = [
    "VersionContents",
    "check_unpublished",
    "find_onnx_file",
    "graph_digest",
    "graph_source",
    "malformed_graphs_refused",
    "read_contents",
]

_MODEL_FILE: Final = "model.onnx"
_MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, eq=False)
class VersionContents:
    """A graph, and what comes with it, found to fit together.

    Attributes:
        onnx_file: of the graph.
        graph: as it was read.
        signature: its inputs and outputs.
        axes: what model.yaml says about axis 0 of inputs, by input.
        row_axes: the same, resolved for every input.
        user_inputs: graph inputs that may be sent once per request.
        lookups: what fills inputs from tables; None where callers send all of them.
        samples: warm-up requests as they were sent.
    """

    onnx_file: OnnxFile
    graph: ir.Model
    signature: Signature
    axes: Mapping[str, InputAxis]
    row_axes: RowAxes
    user_inputs: tuple[str, ...]
    lookups: Lookups | None
    samples: tuple[Sample, ...]


def find_onnx_file(files: VersionFiles, meaning: ModelMeaning) -> OnnxFile:
    """Return the graph's file, found safe to open.

    Raises:
        NotFound: the version has none.
        InvalidInput, TooLarge, Unavailable: as `check_onnx_file`.
    """
    name = files.manifest.model_file if files.manifest else _MODEL_FILE
    if name not in files:
        others = [path for path in files.bytes if path.endswith(".onnx")]
        found = f"found {', '.join(others[:5])}" if others else "found no .onnx file at all"
        raise NotFound(f"the version has no {name}; {found}")
    return check_onnx_file(files, name, allow_custom_ops="custom_ops" in meaning.optimize.allow)


def read_contents(
    onnx_file: OnnxFile, files: VersionFiles, meaning: ModelMeaning, tables: VersionTables
) -> VersionContents:
    """Read the graph, and check names in model.yaml, lookups and warm-up requests against it.

    Belongs into `malformed_graphs_refused`.

    Args:
        onnx_file: of the graph.
        files: of the version.
        meaning: its model.yaml.
        tables: that its lookups read.

    Raises:
        InvalidInput: something is malformed or contradicts the graph.
        Unsupported: the graph needs what this release does not have.
        TooLarge: a warm-up request passes a limit.
    """
    graph = open_model(onnx_file.path)
    signature = read_signature(graph)
    check_names(meaning, signature)
    axes = declared_axes(meaning)
    row_axes = resolve_row_axes(signature, axes)
    users = user_inputs(meaning, row_axes)
    lookups = _lookups(onnx_file, files, meaning, tables, signature, row_axes)
    if lookups is None:
        samples = read_samples(files, signature.inputs, signature.outputs)
    else:
        dense = [signature.inputs[index] for index in lookups.dense]
        users = tuple(name for name in users if name in {spec.name for spec in dense})
        samples = read_samples(files, dense, signature.outputs, lookups.features)
    return VersionContents(onnx_file, graph, signature, axes, row_axes, users, lookups, samples)


def graph_source(onnx_file: OnnxFile, files: VersionFiles) -> Source:
    """Return what plans say of the file that they were made from."""
    name = onnx_file.path.relative_to(files.folder).as_posix()
    return Source(file=name, sha256=files.digests.get(name) or file_sha256(onnx_file.path))


def graph_digest(onnx_file: OnnxFile, files: VersionFiles) -> str:
    """Return a digest of the graph and of all of its weights, those in other files included.

    New weights beside a graph leave its own file as it was.
    """
    digest = hashlib.sha256()
    for path in (onnx_file.path, *sorted(onnx_file.external)):
        name = path.relative_to(files.folder).as_posix()
        digest.update(f"{name}\0{files.digests.get(name) or file_sha256(path)}\n".encode())
    return digest.hexdigest()


def _lookups(
    onnx_file: OnnxFile,
    files: VersionFiles,
    meaning: ModelMeaning,
    tables: VersionTables,
    signature: Signature,
    row_axes: RowAxes,
) -> Lookups | None:
    """Return the lookups of a version, tied to its graph."""
    if not meaning.lookups:
        return None
    source = graph_source(onnx_file, files)
    structure = structure_hash(onnx_file.path)
    plan = compile_lookups(meaning, signature, row_axes, tables.by_name, source, structure)
    return lookups_of(plan, signature.inputs, user_features(meaning))


@contextmanager
def malformed_graphs_refused(onnx_file: OnnxFile) -> Iterator[None]:
    """Turn what analyses of a graph trip over into a refusal of the graph.

    Graphs can be malformed in more ways than their analyses foresee.

    Raises:
        InvalidInput: the block tripped.
    """
    try:
        yield
    except _MALFORMED as error:
        raise InvalidInput(f"{onnx_file.path.name}: malformed graph: {error}") from error


def check_unpublished(folder: Path, model_folder: Path) -> None:
    """Check what is about to be published, as far as that goes without running it.

    Args:
        folder: holds the version's files, but no manifest yet.
        model_folder: of the model, whose model.yaml counts where the version has none.

    Raises:
        NotFound: there is no ONNX file.
        InvalidInput: a file is malformed or contradicts another.
        AnabranchError: anything else that `read_contents` and `verify_version` raise.
    """
    files = verify_version(folder, Snapshot(ModelName(model_folder.name), 1))
    meaning = read_meaning(files, model_folder)
    read_cases(files)
    onnx_file = find_onnx_file(files, meaning)
    if meaning.lookups and declared_tables(files):
        with malformed_graphs_refused(onnx_file):  # names of tables come with the manifest
            check_names(meaning, read_signature(open_model(onnx_file.path)))
        return
    tables = read_tables(files, meaning)
    with malformed_graphs_refused(onnx_file):
        contents = read_contents(onnx_file, files, meaning, tables)
    ranking_plan(meaning, contents, files, None)
    check_item_table(meaning, files)
