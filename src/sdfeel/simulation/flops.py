"""What a local update costs on the clock: counted for the model, or a number of the profile."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientSource
from sdfeel.engines.fit import misfit
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.problem import placed
from sdfeel.errors import InputError, warn
from sdfeel.models import cifar_cnn, count_flops_on, layers_flops, mnist_cnn
from sdfeel.simulation.settings import AUTO, Settings
from sdfeel.trees import mapped

PAPER_BATCH = 10


class ClockWarning(UserWarning):
    """The clock charges the paper's FLOPs for another model."""


def charged(settings: Settings, model: nn.Module, source: ClientSource) -> LatencyProfile:
    """The latency profile of a run, with FLOPs that are counted if it asks for that.

    By default those of the paper's network are the paper's number, and others are counted.

    Raises:
        InputError: the profile asks for a count, and the model's layers cannot be counted.
    """
    profile, is_auto = settings.latency, settings.profile == AUTO
    if profile.flops_per_step is not None:
        return profile
    if is_auto and _is_the_papers(model, settings.batch_size):
        return load_profile("paper")
    flops = _count(model, source, settings.batch_size)
    if flops > 0:
        return profile.with_flops(flops)
    name = type(model).__name__
    if not is_auto:
        raise InputError("profile", profile.name, f"the FLOPs of {name} cannot be counted")
    warn(
        f"the FLOPs of {name} cannot be counted: the clock charges the paper's number, 138.4 "
        "MFLOPs for a local update; a profile with flops_per_step = ... says another",
        ClockWarning,
    )
    return load_profile("paper")


def _count(model: nn.Module, source: ClientSource, batch_size: int) -> float:
    """FLOPs of a local update; 0 if no layer of the model is known to the counters."""
    layout = ParameterLayout.of(model)  # which refuses a model without parameters
    device = next(model.parameters()).device
    inputs = placed(source.first(1).inputs, layout.dtype, device)
    batch = min(batch_size, int(source.samples.max()))  # at or above its data: all of it
    two = mapped(lambda tensor: tensor[[0, 0]], inputs)  # of one, some layers make no batch
    try:
        flops = layers_flops(model, two)
        flops = count_flops_on(model, two) if flops is None else flops
    except Exception as problem:
        raise misfit(model, two, problem) from None
    return flops * batch / 2


def _is_the_papers(model: nn.Module, batch_size: int) -> bool:
    """Return whether this is the paper's network with its batches."""
    shapes = sorted(tuple(parameter.shape) for parameter in model.parameters())
    return batch_size == PAPER_BATCH and shapes in _networks()


@cache
def _networks() -> list[list[tuple[int, ...]]]:
    """The shapes of the paper's networks; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        made = (mnist_cnn(), cifar_cnn())
    return [
        sorted(tuple(parameter.shape) for parameter in network.parameters()) for network in made
    ]
