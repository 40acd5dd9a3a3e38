"""The embedding store: rows of tables, once in memory for all processes, changed under readers.

Segments are files of immutable tables. A `StoreWriter` makes a generation over a segment, which is
what changes; readers in any process map both and look rows up at a version they were told. A
`LookupPlan` does all lookups of a model in one call. What a lookup means: docs/store.md.
"""

from anabranch_runtime.store.builder import Duplicates, SegmentBuilder, TableBuilder
from anabranch_runtime.store.compilation import compile_plan
from anabranch_runtime.store.features import (
    BagForm,
    Combiner,
    FeatureArrays,
    FeatureLookup,
    IdType,
    LookupBuffer,
    MissingPolicy,
    OutputType,
    Side,
)
from anabranch_runtime.store.generation import Generation
from anabranch_runtime.store.layout import index_bytes, row_stride
from anabranch_runtime.store.lookup_plan import LookupArguments, LookupPlan, instruction_sets
from anabranch_runtime.store.rows import KeyKind, Keys, RowType
from anabranch_runtime.store.segments import (
    Base,
    Probes,
    Residency,
    Segment,
    SegmentTable,
    suited_base,
)
from anabranch_runtime.store.sizes import Capacity, ChangeCounts, StoreBytes, TableStats
from anabranch_runtime.store.writer import Change, Growth, StoreFull, StoreWriter

__all__ = [
    "BagForm",
    "Base",
    "Capacity",
    "Change",
    "ChangeCounts",
    "Combiner",
    "Duplicates",
    "FeatureArrays",
    "FeatureLookup",
    "Generation",
    "Growth",
    "IdType",
    "KeyKind",
    "Keys",
    "LookupArguments",
    "LookupBuffer",
    "LookupPlan",
    "MissingPolicy",
    "OutputType",
    "Probes",
    "Residency",
    "RowType",
    "Segment",
    "SegmentBuilder",
    "SegmentTable",
    "Side",
    "StoreBytes",
    "StoreFull",
    "StoreWriter",
    "TableBuilder",
    "TableStats",
    "compile_plan",
    "index_bytes",
    "instruction_sets",
    "row_stride",
    "suited_base",
]
