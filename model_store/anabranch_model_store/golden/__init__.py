"""Golden requests: proof that a version makes the keys and scores that its trainer made."""

from anabranch_model_store.golden.policy import golden_notes
from anabranch_model_store.golden.proof import GoldenReport, GoldenVersion, prove

__all__ = ["GoldenReport", "GoldenVersion", "golden_notes", "prove"]
