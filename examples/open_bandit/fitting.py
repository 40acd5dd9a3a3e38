"""Fit the click model to impressions: same seed, same machine, same weights."""

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from open_bandit.features import BUCKETS, Inputs
from open_bandit.impressions import ITEMS
from open_bandit.network import ClickModel

__all__ = ["fit", "score", "tensors"]

_SEED: Final = 7
_EPOCHS: Final = 4
_BATCH_ROWS: Final = 256
_LEARNING_RATE: Final = 1e-3
_WIDE_LEARNING_RATE: Final = 5e-2
_WEIGHT_DECAY: Final = 0.01
_POSITIONS: Final = 3
_CALIBRATION_STEPS: Final = 20


def fit(inputs: Inputs, clicks: NDArray[np.float32]) -> ClickModel:
    """Return a model trained on N rows, whose mean score on them is their click rate.

    Args:
        inputs: name -> (N, ...) of every model input.
        clicks: (N,) float32, 1 or 0.
    """
    torch.manual_seed(_SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    model = ClickModel(BUCKETS, ITEMS, _POSITIONS, click_rate=float(clicks.mean()))
    rows, targets = tensors(inputs), torch.from_numpy(clicks)[:, None]
    wide = list(model.wide.parameters())
    deep = [p for name, p in model.named_parameters() if not name.startswith("wide.")]
    optimizer = torch.optim.AdamW(deep, lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    optimizer.add_param_group({"params": wide, "lr": _WIDE_LEARNING_RATE})
    for _ in range(_EPOCHS):
        for batch in torch.split(torch.randperm(len(clicks)), _BATCH_ROWS):
            scores = model(**{name: values[batch] for name, values in rows.items()})
            loss = functional.binary_cross_entropy(scores, targets[batch])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    _calibrate(model, inputs, float(clicks.mean()))
    return model.eval()


def score(model: ClickModel, inputs: Inputs) -> NDArray[np.float32]:
    """Probabilities (N,) float32 of N rows."""
    with torch.no_grad():
        scores: NDArray[np.float32] = model(**tensors(inputs)).numpy()[:, 0]
    return scores


def tensors(inputs: Inputs) -> dict[str, torch.Tensor]:
    """The same arrays for torch, which shares their memory where they are contiguous."""
    return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in inputs.items()}


def _calibrate(model: ClickModel, inputs: Inputs, click_rate: float) -> None:
    """Shift the output bias until the mean score is `click_rate` (Newton's method)."""
    for _ in range(_CALIBRATION_STEPS):
        scores = score(model, inputs).astype(np.float64)
        slope = (scores * (1 - scores)).mean()
        with torch.no_grad():
            model.out.bias.add_(float((click_rate - scores.mean()) / slope))
