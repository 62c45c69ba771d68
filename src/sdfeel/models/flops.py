"""What one local iteration costs, counted rather than quoted."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sdfeel.trees import Tree, called, leaves

__all__ = ["count_flops", "count_flops_on"]


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
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    return count_flops_on(model, torch.zeros((batch, *sample_shape), dtype=dtype, device=device))


def count_flops_on(model: nn.Module, inputs: Tree) -> int:
    """The same on one batch of inputs, whatever their structure and that of the outputs."""
    trial = copy.deepcopy(model).train()
    counter = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), counter:
        outputs = [out for out in leaves(called(trial, inputs)) if out.requires_grad]
        if outputs:
            torch.autograd.backward([out.sum() for out in outputs])
    return int(counter.get_total_flops())
