"""A loss that only Python knows, between the compiled forward pass and the compiled backward pass.

Clients of a chunk go forward in C; autograd makes gradients of their outputs alone, of all clients
in one call by `vmap`; in C they go back. Where the loss cannot be batched it is asked client by
client. It is never asked by two threads at once: while one thread asks, the others are in C.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from sdfeel.trees import Tree, mapped

from .errors import Unsupported

Loss = Callable[[Any, Any], Tensor]


def check_draws_nothing(loss: Loss, outputs: Tensor, targets: Tree) -> None:
    """Raise Unsupported if the loss draws random numbers: nobody could draw them again."""
    before = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        loss(outputs, targets)
        is_random = not torch.equal(before, torch.get_rng_state())
    if is_random:
        raise Unsupported("the loss draws random numbers")


class OuterLoss:
    """The gradients of a loss with respect to outputs, for several clients at once.

    shape  of a sample's outputs, as the loss gets them: (classes,), or () for a number each
    """

    def __init__(self, loss: Loss, targets: Tree, shape: tuple[int, ...]) -> None:
        self._loss, self._targets, self._shape = loss, targets, shape
        self._batched = vmap(loss)
        self._can_batch = True
        self._lock = threading.Lock()

    def gradients(
        self,
        outputs: NDArray[Any],
        rows: NDArray[np.int64],
        lengths: NDArray[np.int64],
        into: NDArray[Any],
    ) -> NDArray[np.float64]:
        """Return each client's loss; its gradients go to `into`, which is shaped as `outputs`.

        outputs  (clients x samples x numbers), of which each client has `lengths` samples
        rows     the places of their targets (clients x samples)
        """
        if (lengths == len(rows[0])).all():  # as it is nearly always: nothing is copied
            losses, gradients = self._one_call(outputs, rows)
            into[:] = gradients
            return losses
        values = np.full(len(outputs), np.nan)
        for length in np.unique(lengths[lengths > 0]):
            which = np.flatnonzero(lengths == length)
            part = self._one_call(outputs[which, :length], rows[which, :length])
            values[which], into[which, :length] = part
        return values

    def _one_call(
        self, outputs: NDArray[Any], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return losses and gradients of clients whose batches are of one length."""
        part = torch.from_numpy(outputs).view(*rows.shape, *self._shape)
        index = torch.from_numpy(rows)
        targets = mapped(lambda tensor: tensor[index], self._targets)
        with self._lock, torch.enable_grad():
            gradients, losses = self._of(part, targets)
        return losses.double().numpy(), gradients.reshape(outputs.shape).numpy()

    def _of(self, outputs: Tensor, targets: Tree) -> tuple[Tensor, Tensor]:
        if self._can_batch:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what has no rule for batches is a loop there
                    losses = self._batched(outputs.requires_grad_(), targets)
                # Clients do not meet in it: of their sum each has its own gradient.
                (gradients,) = torch.autograd.grad(losses.sum(), outputs)
                return gradients, losses.detach()
            except Exception:
                self._can_batch = False  # it looks at numbers, or changes tensors: client by client
        outputs = outputs.detach()
        gradients, losses = torch.empty_like(outputs), outputs.new_empty(len(outputs))
        for client in range(len(outputs)):
            part = outputs[client].clone().requires_grad_()
            loss = self._loss(part, mapped(lambda tensor, i=client: tensor[i], targets))
            (gradients[client],) = torch.autograd.grad(loss, part)
            losses[client] = loss.detach()
        return gradients, losses
