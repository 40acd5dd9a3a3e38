"""What the cache file of an item table holds: forms of columns, their buffers, and the header.

The file is Arrow IPC (docs/formats.md, "Item tables"). pyarrow is imported on use; it comes without
types, so its objects are `Any` here and in `item_table` and nowhere else.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, Literal

import msgspec

from anabranch_runtime.ranking.plans import ValueType
from anabranch_wire.errors import Unavailable

__all__ = [
    "FIRST",
    "FORMAT",
    "HASH",
    "HEADER",
    "HEADER_CHECKSUM",
    "KEY",
    "ItemForm",
    "ItemHeader",
    "all_forms",
    "arrow_type",
    "buffers_of",
    "feature_column",
    "pyarrow",
]

FORMAT: Final = 1
KEY: Final = "index.key"
HASH: Final = "index.hash"
FIRST: Final = "index.first"
HEADER: Final = b"anabranch"
HEADER_CHECKSUM: Final = b"anabranch.crc32c"
"""Keys of the schema's metadata: the header as JSON, and its CRC32C in decimal."""


class ItemForm(msgspec.Struct, frozen=True):
    """Form of the values of one feature.

    Attributes:
        type: of a value.
        width: values of a row that is not ragged.
        ragged: whether rows differ in their number of values.
        weighted: whether each value has a weight beside it; then it is ragged.
    """

    type: ValueType
    width: int = 1
    ragged: bool = False
    weighted: bool = False


class ItemHeader(msgspec.Struct, frozen=True):
    """What the schema says about a table.

    Attributes:
        format: of the file.
        rows: items.
        key: type of the ids.
        seed: of their hash.
        longest: bytes of the longest id; 0 for integers.
        features: feature -> form of its column.
        checksums: column -> buffer -> CRC32C.
    """

    format: int
    rows: int
    key: Literal["int64", "string"]
    seed: int
    longest: int
    features: Mapping[str, ItemForm]
    checksums: Mapping[str, Mapping[str, int]]


def feature_column(feature: str) -> str:
    """Return the name of a feature's column in the file."""
    return f"feature.{feature}"


def all_forms(header: ItemHeader) -> dict[str, ItemForm]:
    """Return the form of each column of the file, in its order."""
    return {
        KEY: ItemForm(header.key),
        HASH: ItemForm("int64"),
        FIRST: ItemForm("int64"),
        **{feature_column(name): form for name, form in header.features.items()},
    }


def pyarrow(what: str, module: str = "pyarrow") -> Any:  # noqa: ANN401 (it has no types)
    """Import pyarrow, or a part of it.

    Raises:
        Unavailable: it is not installed; the message begins with `what`.
    """
    try:
        return import_module(module)
    except ImportError:
        raise Unavailable(
            f"{what}: item tables need pyarrow, which is not installed: "
            "pip install 'anabranch[parquet]'"
        ) from None


def arrow_type(form: ItemForm, arrow: Any) -> Any:  # noqa: ANN401 (pyarrow has no types)
    """Return the Arrow type of a column of `form`."""
    value = {"int64": arrow.int64, "float32": arrow.float32, "string": arrow.large_string}
    one = value[form.type]()
    if form.weighted:
        one = arrow.struct([("ids", one), ("weights", arrow.float32())])
    if form.ragged:
        return arrow.large_list(one)
    return one if form.width == 1 else arrow.list_(one, form.width)


def buffers_of(column: Any, form: ItemForm) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # pyarrow has no types
    """Yield the buffers of an Arrow array of `form` by name; some may be left out."""
    names = ["validity"]
    if form.ragged:
        names.append("offsets")
    if form.weighted:
        names.append("")
    if form.ragged or form.width != 1:
        names.append("")
    names += ["text offsets", "text"] if form.type == "string" else ["values"]
    if form.weighted:
        names += ["", "weights"]
    for name, buffer in zip(names, column.buffers(), strict=True):
        if name and buffer is not None:
            yield name, buffer
