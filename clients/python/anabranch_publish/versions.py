"""Publishing a full version of a model, into a repository on this machine or behind a URL."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, TypedDict

from msgspec import structs

from anabranch_publish import tables as table_files
from anabranch_publish.local_storage import LocalStorage
from anabranch_publish.sending import send_version
from anabranch_publish.staging import Staging
from anabranch_publish.storage import open_storage
from anabranch_publish.tables import Rows
from anabranch_wire import manifest
from anabranch_wire.errors import Conflict, InvalidInput, NotFound
from anabranch_wire.manifest import Manifest, TableFile
from anabranch_wire.names import check_model_name, is_version, parse_version

__all__ = ["PublishedVersion", "VersionParts", "publish_version"]

_MODEL_FILE: Final = "model.onnx"


class VersionParts(TypedDict, total=False):
    """What `publish_version` takes beside the model and the number; see there."""

    external_data: Sequence[str]
    model_yaml: str | Path | None
    tables: Mapping[str, Rows | str | Path] | None
    warmup: Sequence[str | Path]
    golden: Sequence[str | Path]
    items: Sequence[str | Path]
    vocabularies: Sequence[str | Path]
    step: int | None
    event_time: float | None
    check: Callable[[Path], None] | None


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """What was published.

    Attributes:
        model: name of the model.
        version: number of the version.
        path: its folder; a URL where the repository is behind one.
        identity: by which deltas name it as their base.
        bytes: size of its files, the manifest not counted.
    """

    model: str
    version: int
    path: Path | str
    identity: str
    bytes: int


def publish_version(
    model_dir: str | Path,
    model_onnx: str | Path,
    *,
    version: int | None = None,
    external_data: Sequence[str] = (),
    model_yaml: str | Path | None = None,
    tables: Mapping[str, Rows | str | Path] | None = None,
    warmup: Sequence[str | Path] = (),
    golden: Sequence[str | Path] = (),
    items: Sequence[str | Path] = (),
    vocabularies: Sequence[str | Path] = (),
    step: int | None = None,
    event_time: float | None = None,
    check: Callable[[Path], None] | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> PublishedVersion:
    """Copy a model and what belongs to it into `model_dir/<version>`, all of it or nothing.

    The version is durable and visible when this returns; a server that watches the repository takes
    it from there. Any number of processes may publish into one model at a time.

    Args:
        model_dir: the model's folder in the repository; its name is the model's name. It is made
            where it is missing, in a repository that is there. Or a URL that fsspec knows, as
            `s3://bucket/ctr`.
        model_onnx: the exported model.
        version: at least 1; None takes the number after the highest that is there.
        external_data: files that the ONNX file refers to, by their names relative to it.
        model_yaml: what the inputs, tables and outputs mean.
        tables: table name -> rows, or a safetensors file that holds them.
        warmup: .npz or .json files to run before the version serves.
        golden: .json files, each a request with the keys and scores it must give.
        items: .parquet files of the item tables; they lie in `items/` under their own names.
        vocabularies: .txt files of features, a value a line; they lie in `vocab/` likewise.
        step: training step of the model.
        event_time: time of the newest training event in it, in seconds since 1970.
        check: called with the folder of all files but the manifest, which it must leave as it is,
            before the version gets its name; what it raises keeps the version from being published
            and comes out of here.
        storage_options: of the URL's file system, as fsspec takes them.

    Raises:
        Conflict: that version is there already.
        NotFound: one of the files, or the repository, is not there.
        InvalidInput: the model's name, a number, a table or a file name is refused.
        Unsupported: the packages for the URL are missing, or its file system cannot create a file
            exclusively.
        OSError: the file system refused, as when it is full; nothing is published.
    """
    number = None if version is None else parse_version(str(version))
    model_onnx = Path(model_onnx)

    def gather(staging: Staging, model: str) -> Manifest:
        staging.copy(model_onnx, _MODEL_FILE)
        for path in external_data:
            staging.copy(model_onnx.parent / path, path)
        if model_yaml is not None:
            staging.copy(Path(model_yaml), "model.yaml")
        _copy_samples(staging, "warmup", warmup, (".npz", ".json"))
        _copy_samples(staging, "golden", golden, (".json",))
        _copy_samples(staging, "items", items, (".parquet",))
        _copy_samples(staging, "vocab", vocabularies, (".txt",))
        entries = tuple(_add_tables(staging, tables or {}))
        if check is not None:
            check(staging.folder)
        return Manifest(
            format=1,
            kind="version",
            model=model,
            version=number or 1,
            producer=f"anabranch-client {metadata.version('anabranch-client')}",
            created=time.time(),
            step=step,
            event_time=event_time,
            model_file=_MODEL_FILE,
            tables=entries,
            files=staging.files,
        )

    storage = open_storage(model_dir, storage_options)
    if isinstance(storage, LocalStorage):
        return _publish_local(storage.root, number, gather)
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-") as gathered,
        Staging(Path(gathered)) as staging,
    ):
        document = gather(staging, storage.model)
        manifest.encode(document)  # what can be refused is refused before anything is sent
        path, document = send_version(storage, staging.folder, document, number)
        return _published(document, path)


def _publish_local(
    model_dir: Path, number: int | None, gather: Callable[[Staging, str], Manifest]
) -> PublishedVersion:
    model = check_model_name(model_dir.absolute().name)
    if number is not None and (model_dir / str(number)).exists():
        raise Conflict(f"version {number} of {model} is taken")  # no need to copy gigabytes first
    made = not model_dir.exists()
    try:
        model_dir.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise NotFound(f"{model_dir.parent}: no such repository: make the folder first") from None
    try:
        with Staging(model_dir) as staging:
            document = gather(staging, model)
            if number is None:
                document = structs.replace(document, version=_next_version(model_dir))
            return _publish(staging, document, model_dir, keep_number=number is not None)
    except BaseException:
        if made:  # a model without a version would keep servers from being ready
            with suppress(OSError):  # not if somebody else publishes into it
                model_dir.rmdir()
        raise


def _publish(
    staging: Staging, document: Manifest, model_dir: Path, *, keep_number: bool
) -> PublishedVersion:
    """Publish under the document's version, or under a later one where that is taken and may be."""
    while True:
        data = manifest.encode(document)
        try:
            path = staging.publish(document.version, manifest.FILE_NAME, data)
        except Conflict:
            if keep_number:
                raise
            document = structs.replace(document, version=_next_version(model_dir))
            continue
        return _published(document, path)


def _published(document: Manifest, path: Path | str) -> PublishedVersion:
    return PublishedVersion(
        model=document.model,
        version=document.version,
        path=path,
        identity=manifest.identity(manifest.encode(document)),
        bytes=sum(file.bytes for file in document.files),
    )


def _next_version(model_dir: Path) -> int:
    taken = [int(path.name) for path in model_dir.iterdir() if is_version(path.name)]
    return 1 + max(taken, default=0)


def _copy_samples(
    staging: Staging, folder: str, sources: Iterable[str | Path], suffixes: tuple[str, ...]
) -> None:
    for source in map(Path, sources):
        if source.suffix not in suffixes:
            raise InvalidInput(f"{source}: {folder} files end in {' or '.join(suffixes)}")
        staging.copy(source, f"{folder}/{source.name}")


def _add_tables(staging: Staging, tables: Mapping[str, Rows | str | Path]) -> Iterator[TableFile]:
    for index, (name, source) in enumerate(tables.items()):
        file = f"tables/{index:04}.safetensors"
        if isinstance(source, Rows):
            path = staging.reserve(file)
            table_files.write(path, source)
            staging.adopt(file)
        else:
            path = staging.copy(Path(source), file)
        yield table_files.describe(path, name, file)
