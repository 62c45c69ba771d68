"""What a local update costs on the clock: counted for the model, or a number of the profile."""

from __future__ import annotations

from functools import cache

import torch
from torch import nn

from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientSource
from sdfeel.errors import InputError
from sdfeel.models import cifar_cnn, count_flops_on, layers_flops, mnist_cnn
from sdfeel.simulation.parameters import ParameterLayout
from sdfeel.simulation.problem import Problem, placed
from sdfeel.trees import Tree, leaves, mapped

__all__ = ["counted", "doubt"]

# The paper's batch, and by how much a count may be off the profile's number without a word.
PAPER_BATCH = 10
CLOSE = 0.1


def counted(
    profile: LatencyProfile, model: nn.Module, source: ClientSource, batch_size: int
) -> LatencyProfile:
    """The profile, its FLOPs counted if it asks for that."""
    if profile.flops_per_step is not None:
        return profile
    inputs = source.take([0]).inputs
    device = next(model.parameters()).device
    inputs = placed(inputs, ParameterLayout.of(model).dtype, device)
    batch = min(batch_size, int(source.samples.max()))  # at or above its data: all of it
    try:
        return profile.with_flops(_flops(model, inputs, batch))
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        reason = str(problem).splitlines()[0]
        shapes = " and ".join(str(tuple(tensor.shape[1:])) for tensor in leaves(inputs))
        raise InputError(
            "model", type(model).__name__, f"does not take inputs of shape {shapes}: {reason}"
        ) from None


def doubt(profile: LatencyProfile, problem: Problem, own: bool) -> str | None:
    """A sentence where the clock charges the paper's FLOPs for a model that needs others.

    own  whether trainers of the user's do the local updates: nobody can count theirs
    """
    charged = profile.flops_per_step
    if charged is None or charged != _of_the_paper() or (not own and _is_the_paper_s(problem)):
        return None
    said = f"the clock charges {charged / 1e6:.4g} MFLOPs for a local update, the paper's number"
    needed = None if own else _needed(problem)
    if needed is None:
        return f"{said}; what this model needs cannot be counted: a profile may say it, as " + (
            "flops_per_step = ..."
        )
    if abs(needed / charged - 1) <= CLOSE:
        return None
    return f"{said}, where this model needs {needed / 1e6:.4g}: {_remedy(profile)} counts them"


def _remedy(profile: LatencyProfile) -> str:
    if profile.name == "paper":
        return 'profile="counted" (clock.profile=counted)'
    return 'a profile with flops_per_step = "counted"'


@cache
def _of_the_paper() -> float | None:
    return load_profile("paper").flops_per_step


def _is_the_paper_s(problem: Problem) -> bool:
    """Its network with its batches: there the paper's number is what was asked for."""
    return problem.batch_size == PAPER_BATCH and sorted(problem.layout.shapes) in _networks()


@cache
def _networks() -> list[list[tuple[int, ...]]]:
    """The shapes of the paper's networks; torch's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        return [sorted(ParameterLayout.of(make()).shapes) for make in (mnist_cnn, cifar_cnn)]


def _needed(problem: Problem) -> float | None:
    """FLOPs of a local update; None if they cannot be counted."""
    data = problem.data
    batch = min(problem.batch_size, int(data.samples.max()))
    try:
        inputs, _ = data.part(slice(1))
        two = mapped(lambda tensor: tensor[[0, 0]], inputs)  # of one, some layers make no batch
        flops = layers_flops(problem.model, two)
        flops = count_flops_on(problem.model, two) if flops is None else flops
        return flops * batch / 2 or None  # the counter knows no recurrent layers: 0
    except Exception:  # whatever a user's model raises, it cannot be counted
        return None


def _flops(model: nn.Module, inputs: Tree, batch_size: int) -> int:
    """Of one local update on a batch of so many samples."""
    return count_flops_on(model, mapped(lambda tensor: tensor[[0] * batch_size], inputs))
