"""What the graph optimizer may do to a version, and how far answers may move."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from anabranch_model_store.model_yaml.values import Index
from anabranch_wire.document_fields import check_unique
from anabranch_wire.documents import Document

__all__ = ["Optimize", "Parity"]


class Parity(Document, frozen=True, kw_only=True):
    """How much an answer may differ from the original graph's.

    Attributes:
        max_abs_diff: of any output element.
        min_rank_agreement: of rankings by the same rows.
    """

    max_abs_diff: Annotated[float, Meta(ge=0)] = 1e-5
    min_rank_agreement: Annotated[float, Meta(ge=0, le=1)] = 1.0


_EXACT: Final = Parity()


class Optimize(Document, frozen=True, kw_only=True):
    """Settings of the optimizer.

    Attributes:
        split: cut lookups out of the graph.
        min_table_bytes: smaller tables stay in the dense graph.
        user_once: compute what depends on the user alone once for each request.
        on_difference: what a failed comparison means.
        parity: the budget; None where the default holds.
        dense: arithmetic of the dense graph.
        allow: what is refused otherwise.
    """

    split: Literal["auto", "off"] = "auto"
    min_table_bytes: Index = 65_536
    user_once: Literal["auto", "off"] = "auto"
    on_difference: Literal["leave_whole", "refuse"] = "leave_whole"
    parity: Parity | None = None
    dense: Literal["f32", "int8", "int8_dynamic", "f16", "bf16"] = "f32"
    allow: tuple[Literal["custom_ops", "external_data_outside"], ...] = ()

    def __post_init__(self) -> None:
        check_unique(self.allow, "allow:")
        if self.dense != "f32" and self.parity is None:
            raise ValueError(f"dense: {self.dense} needs a stated budget; set optimize.parity")

    @property
    def budget(self) -> Parity:
        """The parity budget that holds."""
        return self.parity or _EXACT
