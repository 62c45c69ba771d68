"""What one local iteration costs, counted rather than quoted."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from sdfeel.trees import Tree, called, leaves

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# Layers with parameters and without products of matrices.
OTHERS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.PReLU, nn.Embedding)


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
    """Count the FLOPs of one batch of inputs, whatever the structure of inputs and outputs."""
    trial = copy.deepcopy(model).train()
    counter = FlopCounterMode(display=False)
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), counter:
        outputs = [out for out in leaves(called(trial, inputs)) if out.requires_grad]
        if outputs:
            torch.autograd.backward([out.sum() for out in outputs])
    return int(counter.get_total_flops())


def layers_flops(model: nn.Module, inputs: Tree) -> int | None:
    """Count FLOPs from the sizes of linear and convolutional layers alone.

    None where other layers have parameters. The counter above imports much of torch when it is
    first used, which takes as long as importing torch itself; products without parameters, as of
    queries and keys, are not seen here.
    """
    trial = copy.deepcopy(model).train()
    layers = [m for m in trial.modules() if next(m.parameters(recurse=False), None) is not None]
    if not all(type(m) in (nn.Linear, *CONVOLUTIONS) or isinstance(m, OTHERS) for m in layers):
        return None
    total = 0

    def count(layer: nn.Module, given: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal total
        weight = layer.get_parameter("weight")
        # forward, gradient of the weights, and of the inputs unless they are the samples
        passes = 1 + weight.requires_grad + given[0].requires_grad
        total += 2 * output.numel() * (weight.numel() // weight.shape[0]) * passes

    for layer in layers:
        if not isinstance(layer, OTHERS):
            layer.register_forward_hook(count)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        called(trial, inputs)
    return total
