"""The click model, wide and deep: embeddings and one hidden layer, beside a direct term.

Every row is scored on its own: nothing mixes rows and no batch size is baked in.
"""

from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["ClickModel"]

_DIM: Final = 8
_HIDDEN: Final = 32


class ClickModel(nn.Module):
    """Probability that a user clicks an item shown at a position.

    Args:
        buckets: rows of each hashed table.
        items: number of items; their keys are 1 to `items`, and key 0 is no item.
        positions: places on the page, numbered from 1.
        click_rate: start of the output, so that training only has to learn who differs from it.
    """

    def __init__(self, buckets: int, items: int, positions: int, click_rate: float) -> None:
        super().__init__()
        self.user_tables = nn.ModuleList([_table(buckets) for _ in range(4)])
        self.item_feature_tables = nn.ModuleList([_table(buckets) for _ in range(3)])
        self.item_table = _table(items + 1)
        self.position_table = _table(positions + 1)
        fields = 4 + 3 + 1 + 1 + 1 + 1  # the last two: the bag, and its product with the item
        self.hidden = nn.Linear(fields * _DIM + 2, _HIDDEN)
        self.out = nn.Linear(_HIDDEN, 1)
        self.wide = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.wide.weight)
        nn.init.zeros_(self.out.weight)
        nn.init.constant_(self.out.bias, float(torch.logit(torch.tensor(click_rate))))

    def forward(
        self,
        user_features: Tensor,
        item_id: Tensor,
        item_features: Tensor,
        item_value: Tensor,
        position: Tensor,
        affinity: Tensor,
        top_items: Tensor,
    ) -> Tensor:
        """Score N rows.

        Args:
            user_features: (N, 4) int64; hashed keys.
            item_id: (N,) int64; item key, 1 to 80.
            item_features: (N, 3) int64; hashed keys.
            item_value: (N, 1) float32; the item's numeric feature.
            position: (N,) int64; 1 to 3.
            affinity: (N, 1) float32; the user's past clicks on this item.
            top_items: (N, L) int64; item keys, 0 where there is none.

        Returns:
            (N, 1) float32; probability of a click.
        """
        item = self.item_table(item_id)
        bag = self._mean_of_top_items(top_items)
        fields = [table(user_features[:, k]) for k, table in enumerate(self.user_tables)]
        fields += [table(item_features[:, k]) for k, table in enumerate(self.item_feature_tables)]
        fields += [item, self.position_table(position), bag, item * bag, item_value, affinity]
        hidden = torch.relu(self.hidden(torch.cat(fields, dim=1)))
        click: Tensor = torch.sigmoid(self.out(hidden) + self.wide(affinity))
        return click

    def _mean_of_top_items(self, top_items: Tensor) -> Tensor:
        """Mean row of the keys that are not 0: (N, L) -> (N, dim); zeros for an empty bag."""
        present = (top_items != 0).to(torch.float32).unsqueeze(2)
        rows: Tensor = self.item_table(top_items) * present
        return rows.sum(dim=1) / present.sum(dim=1).clamp(min=1.0)


def _table(rows: int) -> nn.Embedding:
    """Rows start small: a row that training never touches adds almost nothing to a score."""
    table = nn.Embedding(rows, _DIM)
    nn.init.normal_(table.weight, std=0.01)
    return table
