"""model.yaml: what a version means."""

from anabranch_model_store.model_yaml.features import (
    Bucketize,
    Feature,
    FeatureHash,
    MultiHash,
    PackedInput,
    Ragged,
    Vocabulary,
)
from anabranch_model_store.model_yaml.item_sequences import ItemSequence
from anabranch_model_store.model_yaml.meaning import InputMeaning, ModelMeaning, OutputMeaning
from anabranch_model_store.model_yaml.optimizing import Optimize, Parity
from anabranch_model_store.model_yaml.ranking import Calibration, EasyRec, Isotonic, Ranking, Score
from anabranch_model_store.model_yaml.tables import (
    Capacity,
    ItemTable,
    Lookup,
    LookupOutput,
    TableMeaning,
)

__all__ = [
    "Bucketize",
    "Calibration",
    "Capacity",
    "EasyRec",
    "Feature",
    "FeatureHash",
    "InputMeaning",
    "Isotonic",
    "ItemSequence",
    "ItemTable",
    "Lookup",
    "LookupOutput",
    "ModelMeaning",
    "MultiHash",
    "Optimize",
    "OutputMeaning",
    "PackedInput",
    "Parity",
    "Ragged",
    "Ranking",
    "Score",
    "TableMeaning",
    "Vocabulary",
]
