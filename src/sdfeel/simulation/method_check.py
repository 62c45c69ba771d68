"""A method of the user's own, tried on a few numbers before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.method import Affine, Method, Step
from sdfeel.engines.plain import new_row
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.algorithm.methods.optimizers import Optimizer

CLIENTS, WIDTH, STEPS, ETA = 3, 5, 3, 0.1


def check_methods(algorithm: Algorithm) -> None:
    """Refuse a method whose `gradient` mixes clients up, or is not what its `affine` says.

    Engines hand it one client's vector, or those of many as rows.
    """
    for where, method in algorithm.parts.items():
        if method.has("gradient") and not type(method).__module__.startswith("sdfeel."):
            is_last = where == "optimizer"
            optimizer: Optimizer = algorithm.parts["optimizer"]  # type: ignore[assignment]
            chain = Chain(method if is_last else optimizer, () if is_last else (method,))  # type: ignore[arg-type]
            _check(where, method, chain)


def _check(where: str, method: Method, chain: Chain) -> None:
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    start, pushes = numbers(CLIENTS, WIDTH), numbers(STEPS, CLIENTS, WIDTH)
    shared = {name: numbers(CLIENTS, WIDTH) for name in chain.shared}
    together = _carried_out(where, chain, start, pushes, shared, np.arange(CLIENTS))
    for client in range(CLIENTS):
        row = slice(client, client + 1)
        rows_alone = {name: rows[row] for name, rows in shared.items()}
        alone = _carried_out(
            where, chain, start[row], pushes[:, row], rows_alone, np.array([client])
        )
        if not torch.allclose(together[row], alone, rtol=1e-9):
            raise InputError(
                where,
                method.name,
                "its gradient must do the same to a client's row whatever rows stand beside it: "
                "reductions go over dim=-1 with keepdim=True",
            )
    if chain.affine is None:
        return
    by_numbers = _by_numbers(chain, chain.affine, start, pushes, shared)
    if not torch.allclose(together, by_numbers, rtol=1e-9):
        raise InputError(
            where,
            method.name,
            "its `affine` is not what its `gradient` does; correct or leave out `affine`",
        )


def _carried_out(
    where: str,
    chain: Chain,
    start: Tensor,
    pushes: Tensor,
    shared: Mapping[str, Tensor],
    clients: np.ndarray,
) -> Tensor:
    """Make some steps with gradients g = push + w."""
    w = start.clone()
    rows = {name: new_row(row, start) for name, row in chain.rows.items()} | dict(shared)
    for number, push in enumerate(pushes):

        def gradient_at(v: Tensor, push: Tensor = push) -> Tensor:
            return push + v

        step = Step(clients, number + 1, ETA, start, number == 0, gradient_at)
        try:
            chain.update(w, push + w, rows, step)
        except KeyError as missing:
            remedy = f"uses the row {missing} that it does not name in `rows`"
            raise InputError(where, chain.methods, remedy) from None
        except InputError as mistake:
            raise InputError(where, mistake.value, mistake.remedy) from None
    return w


def _by_numbers(
    chain: Chain, affine: Affine, start: Tensor, pushes: Tensor, shared: Mapping[str, Tensor]
) -> Tensor:
    w, v = start.clone(), torch.zeros_like(start)
    rows = {name: new_row(row, start) for name, row in chain.rows.items()} | dict(shared)
    for push in pushes:
        g = push + w + affine.decay * w + affine.prox * (w - start)
        for name, factor in (affine.shift or {}).items():
            g = g + factor * rows[name]
        v = affine.momentum * v + g
        w = w - ETA * (g + affine.momentum * v if affine.nesterov else v)
    return w
