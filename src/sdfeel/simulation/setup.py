"""From what a user gives to a `Problem`: every mistake is named here, before any training."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import numbers
import re
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.schemes import Plan
from sdfeel.clock import LatencyProfile
from sdfeel.data.clients import ClientData
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.simulation.engines.engine import AveragingRule, Loss, Problem
from sdfeel.simulation.parameters import ParameterLayout

__all__ = [
    "check_device",
    "check_fit",
    "check_numbers",
    "data_digests",
    "fingerprint",
    "make_problem",
]


def make_problem(
    model: nn.Module,
    data: ClientData,
    network: Network,
    *,
    loss: Loss,
    lr: float,
    batch_size: int,
    seed: int,
    device: torch.device,
    held: NDArray[np.int64] | None = None,
) -> Problem:
    """Check model, data and numbers against each other; data goes to the device, in model dtype.

    held  the clients whose data this is, where it is not that of all

    The problem holds a copy of the model: the user's own is never touched.
    """
    check_numbers(lr=lr, batch_size=batch_size, seed=seed)
    if held is None and network.clients != data.clients:
        raise InputError(
            "client_datasets", data.clients, f"the network has {network.clients} clients"
        )
    model = copy.deepcopy(model).to(device)
    layout = ParameterLayout.of(model)
    data = ClientData(
        _placed(data.inputs, layout.dtype, device),
        _placed(data.targets, layout.dtype, device),
        data.offsets,
    )
    check_fit(model, loss, data)
    _check_smallest_batch(model, data, batch_size)
    return Problem(
        model, layout, loss, data, network, float(lr), int(batch_size), seed, device, held
    )


def check_numbers(*, lr: float, batch_size: int, seed: int, steps: int = 1) -> None:
    """Refuse rates and counts that cannot work."""
    if not isinstance(lr, numbers.Real) or not (math.isfinite(lr) and lr > 0):
        raise InputError("lr", lr, "a finite number above 0")
    for name, value in (("batch_size", batch_size), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(name, value, "a whole number, at least 1")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise InputError("seed", seed, "a whole number from 0 to 2**64 - 1")


def check_device(name: str) -> torch.device:
    """The device by its name, if it is there."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError("device", name, f"not available here ({reason}); `cpu` is") from None
    return device


def fingerprint(
    plan: Plan,
    problem: Problem,
    profile: LatencyProfile,
    start: Tensor,
    data: bytes,
    rule: AveragingRule | None = None,
) -> str:
    """A hash of everything that decides what a run computes, so that no other run goes on from it.

    The number of steps and the engine are left out: a run may be made longer. `data` are the
    digests of all clients' data, in client order.
    """
    about: dict[str, Any] = {
        "scheme": plan.scheme,
        "schedule": [plan.schedule.tau1, plan.schedule.tau2, plan.schedule.alpha],
        "averager": plan.averager.name,
        "rule": None if rule is None else _name_of(rule),
        "participation": [
            float(plan.participation.beta),
            plan.participation.drawn,
            plan.participation.reach,
        ],
        "clusters": plan.network.clusters.members,
        "links": sorted(sorted(link) for link in plan.network.graph.edges()),
        "profile": repr(profile),
        "lr": problem.lr,
        "batch_size": problem.batch_size,
        "seed": problem.seed,
        "layout": [problem.layout.names, problem.layout.shapes, str(problem.layout.dtype)],
        "loss": _name_of(problem.loss),
    }
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(_bytes(start))
    digest.update(data)
    return digest.hexdigest()


def data_digests(problem: Problem) -> bytes:
    """A hash of each client's data, 32 bytes each: what all ranks together have to agree on."""
    digests = b""
    for client in range(problem.data.clients):
        inputs, targets = problem.data.client(client)
        digests += hashlib.sha256(_bytes(inputs) + _bytes(targets)).digest()
    return digests


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()


def _name_of(function: object) -> str:
    """The name of a function; an object shows itself, with its parameters (losses, rules)."""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else re.sub(r" at 0x[0-9a-f]+", "", repr(function))


def _placed(tensor: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Real numbers in the model's dtype, so that a float64 model trains in float64."""
    return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype).contiguous()


def check_fit(model: nn.Module, loss: Loss, data: ClientData) -> None:
    """One forward pass and one loss on two samples, and the labels of all."""
    inputs, targets = data.inputs[:2], data.targets[:2]
    trial = copy.deepcopy(model).eval()
    try:
        with torch.no_grad():
            outputs = trial(inputs)
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        raise InputError(
            "model",
            type(model).__name__,
            f"does not take inputs of shape {tuple(inputs.shape)}: {_first_line(problem)}",
        ) from None
    if loss is F.cross_entropy or _wants_labels(loss, data.targets):
        _check_classes(outputs, data)
    try:
        with warnings.catch_warnings():
            # Outputs (n, 1) against targets (n,) would be broadcast to n x n, and learn nothing.
            warnings.filterwarnings("error", "Using a target size")
            value = loss(outputs, targets)
    except (RuntimeError, ValueError, TypeError, IndexError, UserWarning) as problem:
        raise InputError(
            "model",
            f"outputs of shape {tuple(outputs.shape)}",
            f"do not fit targets of shape {tuple(targets.shape)} in the loss: "
            f"{_first_line(problem)}",
        ) from None
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InputError("loss", type(value).__name__, "must return one number, the batch's mean")


def _wants_labels(loss: Loss, targets: Tensor) -> bool:
    """Whether a loss object takes class numbers, all of them: what it ignores may be anything."""
    if not isinstance(loss, nn.CrossEntropyLoss) or targets.is_floating_point():
        return False
    return not bool((targets == loss.ignore_index).any())


def _check_smallest_batch(model: nn.Module, data: ClientData, batch_size: int) -> None:
    """A forward pass in training mode: batch normalisation refuses a batch of one sample."""
    client = int(data.samples.argmin())
    inputs = data.client(client)[0][:batch_size]
    trial = copy.deepcopy(model).train()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trial(inputs)
    except (RuntimeError, ValueError) as problem:
        raise InputError(
            "model",
            type(model).__name__,
            f"cannot train on a batch of {len(inputs)}, as client {client} has it: "
            f"{_first_line(problem)}",
        ) from None


def _check_classes(outputs: object, data: ClientData) -> None:
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        shape = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise InputError(
            "model",
            f"outputs {shape}",
            "cross-entropy needs one output per class: (batch, classes)",
        )
    if data.targets.is_floating_point():
        raise InputError(
            "targets",
            str(data.targets.dtype),
            "cross-entropy needs class numbers; for other targets pass your own loss=",
        )
    data.check_labels(outputs.shape[1])


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
