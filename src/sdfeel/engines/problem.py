"""What is trained, on what: every mistake in it is named here, before any training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.rates import Constant, Rate
from sdfeel.algorithm.randomness import draw_batches
from sdfeel.data.clients import ClientData
from sdfeel.engines.fit import Loss, check_fit, check_loss, check_training_pass
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError
from sdfeel.trees import Tree, mapped, with_dtype

__all__ = ["Loss", "Problem", "check_device", "make_problem", "placed"]

Hook = Callable[[Tensor], Tensor | None]


@dataclass(frozen=True)
class Problem:
    """All that an engine needs to begin: a model, data, and what a client does with a gradient.

    `loss(outputs, targets)` is the mean over the batch.
    """

    model: nn.Module
    layout: ParameterLayout
    loss: Loss
    data: ClientData
    batch_size: int
    seed: int
    chain: Chain = field(default_factory=Chain)
    rate: Rate = field(default_factory=Constant)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    # The numbers that clients draw their batches by, where `data` holds only some of all clients.
    client_numbers: NDArray[np.int64] | None = None
    about: str = ""  # what else decides what is computed, in words
    # The user's hooks on the gradients of parameters, by their place among the trained ones.
    hooks: Mapping[int, tuple[Hook, ...]] = field(default_factory=dict)

    @property
    def client_ids(self) -> NDArray[np.int64]:
        """The number of each client of `data` among all clients."""
        return np.arange(self.data.clients) if self.client_numbers is None else self.client_numbers

    def batches(self, clients: NDArray[np.int64], ks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions in `data` of the samples that clients use at iterations k: xi_k^(i), eq. (2).

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
    chain: Chain | None = None,
    rate: Rate | None = None,
    device: torch.device | None = None,
    client_numbers: NDArray[np.int64] | None = None,
) -> Problem:
    """Check model, data and numbers against each other; data goes to the device, in model dtype.

    client_numbers  the clients whose data this is, where it is not that of all

    The problem holds a copy of the model: the user's own is never touched.
    """
    check_loss(loss)
    hooks = _hooks(model)
    device = device or torch.device("cpu")
    model = copy.deepcopy(model).to(device)
    layout = ParameterLayout.of(model)
    data = ClientData(
        placed(data.inputs, layout.dtype, device),
        placed(data.targets, layout.dtype, device),
        data.offsets,
        data.fresh,
        data.index,
    )
    check_fit(model, loss, data)
    check_training_pass(model, data, batch_size)
    return Problem(
        model, layout, loss, data, int(batch_size), seed, chain or Chain(), rate or Constant(),
        device, client_numbers, hooks=hooks,
    )  # fmt: skip


def check_device(name: str) -> torch.device:
    """The device by its name, if it is there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        hint = 'torch calls it "cuda" or "mps"; ' if name.lower() == "gpu" else ""
        remedy = f"{hint}known here: {', '.join(_devices_here())}"
        raise InputError("device", name, remedy) from None
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as problem:
        reason = str(problem).splitlines()[0]
        remedy = f"not available here ({reason}); known here: {', '.join(_devices_here())}"
        raise InputError("device", name, remedy) from None
    return device


def _devices_here() -> list[str]:
    """Names of the devices that torch can use on this machine."""
    mps = ["mps"] if torch.backends.mps.is_available() else []
    return ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count())), *mps]


def placed(tree: Tree, dtype: torch.dtype, device: torch.device) -> Tree:
    """Real numbers in the model's dtype, so that a float64 model trains in float64."""
    return mapped(lambda tensor: tensor.to(device).contiguous(), with_dtype(tree, dtype))


def _hooks(model: nn.Module) -> dict[int, tuple[Hook, ...]]:
    """Return the hooks of `parameter.register_hook`: a copy of a parameter would lose them."""
    hooks: dict[int, tuple[Hook, ...]] = {}
    trained = [(name, tensor) for name, tensor in model.named_parameters() if tensor.requires_grad]
    for place, (name, parameter) in enumerate(trained):
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise InputError(
                "model",
                name,
                "has a hook for after its gradient is accumulated, which would never be called; "
                "register_hook works, and so does an optimizer of your own",
            )
        if parameter._backward_hooks:
            hooks[place] = tuple(parameter._backward_hooks.values())
    return hooks
