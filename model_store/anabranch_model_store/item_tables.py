"""Item tables of a version: checked against the features that they feed, put into the cache."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import UNSET

from anabranch_model_store.hashing import file_sha256
from anabranch_model_store.item_cache import ItemCache
from anabranch_model_store.item_chunks import ItemFile
from anabranch_model_store.item_import import ItemSource, write_item_table
from anabranch_model_store.item_order import KeyType, order_items
from anabranch_model_store.model_yaml import Feature, ItemTable, ModelMeaning
from anabranch_model_store.prepared_stores import StoreSettings
from anabranch_model_store.version_files import VersionFiles
from anabranch_runtime.ranking.item_layout import FORMAT, ItemForm
from anabranch_runtime.ranking.plans import ItemTablePlan, RankingPlan, SequencePlan
from anabranch_wire.errors import InvalidInput, Unavailable

__all__ = ["check_item_table", "import_item_table", "with_item_table"]

_FORMAT: Final = f"items {FORMAT}"
"""Changes with the layout of item tables, and with what is made of the same file."""

_INTEGERS: Final = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))
_FLOATS: Final = frozenset(("halffloat", "float", "double"))
_STRINGS: Final = frozenset(("string", "large_string", "string_view"))
_WORDS: Final = {"int64": "integers", "float32": "numbers", "string": "strings"}


def import_item_table(
    meaning: ModelMeaning,
    files: VersionFiles,
    cache: ItemCache,
    on_bytes: Callable[[int, int], None] = lambda done, total: None,
) -> ItemTablePlan | None:
    """Return the item table that completes candidates, in the cache folder; None: there is none.

    The file is read a column at a time and in pieces; in memory are some 48 bytes for each item.

    Args:
        meaning: of the version.
        files: of the version.
        cache: of item tables.
        on_bytes: told how many bytes of how many are done, roughly.

    Raises:
        InvalidInput: the file is no Parquet file, lacks a column, or holds what a feature cannot
            take; the message names file, column, found and expected.
        NotFound: there is no such file.
        Unavailable: it cannot be read, the cache cannot be written, or pyarrow is not installed.
    """
    table = _table(meaning)
    if table is None:
        return None
    checked = _checked(meaning, table, files)
    file, key, columns, forms = checked.file, checked.key, checked.columns, checked.forms
    total = files.bytes[table.file]
    digest = files.digests.get(table.file) or file_sha256(files.path(table.file))
    parts = [f"{_FORMAT} {digest} {table.key!r} {key}"]
    parts += [f"{feature!r} {column!r} {forms[feature]}" for feature, column in columns.items()]

    def write(folder: Path, name: str) -> None:
        order = order_items(file, table.key, key)
        source = ItemSource(file, order, table.key, columns, forms)
        each = total / (len(columns) + 4)
        write_item_table(source, folder, name, lambda done: on_bytes(int((done + 1) * each), total))

    path = cache.get("\n".join(parts), write, lambda done: on_bytes(min(done, total), total))
    on_bytes(total, total)
    return ItemTablePlan(
        path=str(path),
        columns={feature: feature for feature in sorted(table.columns)},
        sequences=checked.sequences,
        bytes=path.stat().st_size,
    )


def with_item_table(
    plan: RankingPlan | None,
    meaning: ModelMeaning,
    files: VersionFiles,
    settings: StoreSettings | None,
) -> RankingPlan | None:
    """Return the plan of a version's ranking with its item table, imported, if it has any.

    Raises:
        AnabranchError: as `import_item_table`.
        Unavailable: there is no folder to keep it in.
    """
    if plan is None or _table(meaning) is None:
        return plan
    if settings is None or settings.items is None:
        raise Unavailable("the version has an item table, but there is no folder to keep it in")
    table = import_item_table(meaning, files, settings.items, settings.on_bytes)
    return msgspec.structs.replace(plan, item_table=table)


def check_item_table(meaning: ModelMeaning, files: VersionFiles) -> None:
    """Check the columns of the item table that completes candidates; no row is read.

    Raises:
        InvalidInput, NotFound, Unavailable: as `import_item_table`.
    """
    table = _table(meaning)
    if table is not None:
        _checked(meaning, table, files)


def _table(meaning: ModelMeaning) -> ItemTable | None:
    if meaning.ranking is None or meaning.ranking.item_table is None:
        return None
    return meaning.item_tables[meaning.ranking.item_table]


@dataclass(frozen=True, slots=True)
class _Checked:
    """An item table whose columns fit what they are for.

    Attributes:
        file: opened.
        key: type of its ids.
        columns: feature -> column of the file; of those that have the same one, and the same form,
            the first.
        forms: of these features.
        sequences: what fills sequences of users.
    """

    file: ItemFile
    key: KeyType
    columns: dict[str, str]
    forms: dict[str, ItemForm]
    sequences: tuple[SequencePlan, ...]


def _checked(meaning: ModelMeaning, table: ItemTable, files: VersionFiles) -> _Checked:
    """Open the file of a table, and check its columns against the features that they fill."""
    assert meaning.ranking is not None
    features = {feature.name: feature for feature in meaning.features}
    key = features[meaning.ranking.id]
    if key.type == "float32" or key.ragged is not None:
        raise InvalidInput(
            f"model.yaml: ranking.id: {key.name!r} cannot find rows of an item table; expected one "
            "int64 or string"
        )
    if key.name in table.columns:
        raise InvalidInput(
            f"model.yaml: item_tables: {key.name!r} is the id by which rows are found; it cannot "
            "come from the table"
        )
    file = ItemFile(files.path(table.file), table.file)
    types: dict[str, list[Any]] = {}
    for field in file.schema:
        types.setdefault(field.name, []).append(field.type)
    _check_column(file, types, table.key, ItemForm(key.type), key.name)
    columns = {name: table.columns[name] for name in sorted(table.columns)}
    forms = {name: _form(features[name]) for name in columns}
    for name, form in forms.items():
        _check_column(file, types, columns[name], form, name)
    held = {(columns[name], form): name for name, form in reversed(forms.items())}
    sequences: list[SequencePlan] = []
    for name, sequence in sorted(table.sequences.items()):
        found = features[sequence.ids].type
        if found != key.type:
            raise InvalidInput(
                f"model.yaml: item_tables: sequence {name!r}: its ids, {sequence.ids!r}, are "
                f"{found}; those of the table are {key.type}"
            )
        form = ItemForm(features[name].type)
        _check_column(file, types, sequence.column, form, name)
        column = held.setdefault((sequence.column, form), name)
        if column == name:
            columns[name], forms[name] = sequence.column, form
        missing = None if sequence.missing is UNSET else sequence.missing
        if form.type == "float32" and missing is not None:
            missing = float(missing)
        sequences.append(SequencePlan(name, sequence.ids, column, missing))
    return _Checked(file, key.type, columns, forms, tuple(sequences))


def _form(feature: Feature) -> ItemForm:
    return ItemForm(
        feature.type, prod(feature.shape), feature.ragged is not None, weighted=feature.weights
    )


def _check_column(
    file: ItemFile, types: Mapping[str, list[Any]], column: str, form: ItemForm, feature: str
) -> None:
    """Check that a column is there and can feed a feature.

    Raises:
        InvalidInput: it cannot.
    """
    found = types.get(column, [])
    if len(found) != 1:
        names = ", ".join(map(repr, list(types)[:20]))
        why = f"no column {column!r}" if not found else f"{len(found)} columns {column!r}"
        raise InvalidInput(f"{file.what}: {why}; the file has {names or 'none'}")
    if not _fits(found[0], form):
        raise InvalidInput(
            f"{file.what}: column {column!r} is {found[0]}; feature {feature!r} expects "
            f"{_expected(form)}"
        )


def _fits(kind: Any, form: ItemForm) -> bool:  # noqa: ANN401 (an Arrow type)
    if not form.ragged and form.width == 1:
        return _is_value(kind, form)
    if not str(kind).startswith(("list<", "large_list<", "fixed_size_list<")):
        return False
    size = getattr(kind, "list_size", None)
    if not form.ragged and size not in (None, form.width):
        return False
    one = kind.value_type
    if not form.weighted:
        return _is_value(one, form)
    if not str(one).startswith("struct<"):
        return False
    fields = {field.name: field.type for field in one}
    return (
        sorted(fields) == ["ids", "weights"]
        and len(one) == 2
        and _is_value(fields["ids"], form)
        and _is_value(fields["weights"], ItemForm("float32"))
    )


def _is_value(kind: Any, form: ItemForm) -> bool:  # noqa: ANN401 (an Arrow type)
    name = str(kind)
    if form.type == "string":
        return name in _STRINGS or (
            name.startswith("dictionary<") and str(kind.value_type) in _STRINGS
        )
    return name in (_INTEGERS if form.type == "int64" else _INTEGERS | _FLOATS)


def _expected(form: ItemForm) -> str:
    words = _WORDS[form.type]
    if form.weighted:
        return f"lists of struct<ids, weights>, with {words} as ids and numbers as weights"
    if form.ragged:
        return f"lists of {words}"
    return words if form.width == 1 else f"lists of {form.width} {words}"
