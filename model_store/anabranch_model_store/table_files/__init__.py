"""Table files of a version: embedding rows beside the ONNX file, read in pieces of a few MiB."""

from anabranch_model_store.table_files.checking import checked_chunks
from anabranch_model_store.table_files.declared import DeclaredTable, declared_tables
from anabranch_model_store.table_files.opening import open_table_file
from anabranch_model_store.table_files.sources import CHUNK_BYTES, RowChunk, RowSource

__all__ = [
    "CHUNK_BYTES",
    "DeclaredTable",
    "RowChunk",
    "RowSource",
    "checked_chunks",
    "declared_tables",
    "open_table_file",
]
