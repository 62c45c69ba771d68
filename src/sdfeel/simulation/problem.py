"""What is trained, on what: every mistake in it is named here, before any training."""

from __future__ import annotations

import copy
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.local import SGD, LocalRule
from sdfeel.algorithm.randomness import draw_batches
from sdfeel.algorithm.rates import Constant, Rate
from sdfeel.data.clients import ClientData
from sdfeel.errors import InputError
from sdfeel.simulation.parameters import ParameterLayout

__all__ = ["Loss", "Problem", "check_device", "check_fit", "check_numbers", "make_problem"]

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Problem:
    """What an engine needs to begin: a model, data, and what a client does with a gradient.

    `loss(outputs, targets)` is the mean over the batch.
    """

    model: nn.Module
    layout: ParameterLayout
    loss: Loss
    data: ClientData
    batch_size: int
    seed: int
    local: LocalRule = field(default_factory=SGD)
    rate: Rate = field(default_factory=Constant)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # The numbers that clients draw their batches by, where `data` holds only some of all clients.
    held: NDArray[np.int64] | None = None
    about: str = ""  # what else decides what is computed, in words

    @property
    def client_ids(self) -> NDArray[np.int64]:
        """The number of each client of `data` among all clients."""
        return np.arange(self.data.clients) if self.held is None else self.held

    def batches(self, clients: NDArray[np.int64], ks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the data store that clients use at iterations k: xi_k^(i), eq. (2).

        (clients x iterations x batch), for clients whose batches are of one length. A batch size at
        or above a client's data means its full gradient: those that hold less than `batch_size`
        and those that hold just as much draw nothing.
        """
        samples, starts = self.data.samples[clients], self.data.offsets[clients]
        length = int(min(samples.min(initial=self.batch_size), self.batch_size))
        chosen = np.empty((len(clients), len(ks), length), dtype=np.int64)
        chosen[...] = np.arange(length)
        draws = np.flatnonzero(samples > self.batch_size)
        if len(draws):
            ids = self.client_ids[clients[draws]]
            chosen[draws] = draw_batches(self.seed, ids, samples[draws], ks, self.batch_size)
        rows: NDArray[np.int64] = starts[:, None, None] + chosen
        return rows


def make_problem(
    model: nn.Module,
    data: ClientData,
    *,
    loss: Loss = F.cross_entropy,
    batch_size: int,
    seed: int,
    local: LocalRule | None = None,
    rate: Rate | None = None,
    device: torch.device | None = None,
    held: NDArray[np.int64] | None = None,
) -> Problem:
    """Check model, data and numbers against each other; data goes to the device, in model dtype.

    held  the clients whose data this is, where it is not that of all

    The problem holds a copy of the model: the user's own is never touched.
    """
    check_numbers(batch_size=batch_size, seed=seed)
    device = device or torch.device("cpu")
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
        model, layout, loss, data, int(batch_size), seed, local or SGD(), rate or Constant(),
        device, held,
    )  # fmt: skip


def check_numbers(*, batch_size: int, seed: int, steps: int = 1) -> None:
    """Refuse counts that cannot work."""
    for name, value in (("batch_size", batch_size), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
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
