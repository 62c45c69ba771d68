"""What one local iteration costs, counted rather than quoted."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["count_flops"]


def count_flops(
    model: nn.Module,
    sample_shape: Sequence[int],
    batch: int,
    dtype: torch.dtype = torch.float32,
) -> int:
    """FLOPs of the forward and backward pass of one batch, the paper's N_MAC counted for `model`.

    A multiplication and an addition count as two. Counted are matrix products and convolutions;
    element-wise work, pooling and the SGD update are left out, and so is the gradient with respect
    to the input, which training does not need. The model itself is not changed.
    """
    trial = copy.deepcopy(model).train()
    device = next((p.device for p in trial.parameters()), torch.device("cpu"))
    inputs = torch.zeros((batch, *sample_shape), dtype=dtype, device=device)
    counter = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), counter:
        trial(inputs).sum().backward()
    return int(counter.get_total_flops())
