"""The samples on which a run is evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.data.clients import ClientData
from sdfeel.errors import InputError
from sdfeel.simulation.evaluation import Samples, some_rows
from sdfeel.simulation.problem import Problem, check_fit

__all__ = ["test_samples", "train_samples"]


def train_samples(problem: Problem, samples: NDArray[np.int64], count: int | None) -> Samples:
    """The part of the evaluated training samples that this rank holds: the same rows over all
    clients, whatever the number of ranks.
    """
    if count is not None and count < 1:
        raise InputError("train_samples", count, "at least 1, or None for all")
    rows = some_rows(int(samples.sum()), count)
    ends = np.cumsum(samples)
    client = np.searchsorted(ends, rows, side="right")
    within = rows - (ends - samples)[client]
    position = np.full(len(samples), -1)
    position[problem.client_ids] = np.arange(problem.data.clients)
    here = position[client] >= 0
    chosen = torch.from_numpy(problem.data.offsets[position[client[here]]] + within[here])
    return problem.data.inputs[chosen], problem.data.targets[chosen]


def test_samples(test: Any, problem: Problem) -> Samples | None:
    """What a user gives to test on, checked like the clients' data."""
    if test is None:
        return None
    try:
        if not (isinstance(test, tuple) and len(test) == 2 and isinstance(test[0], Tensor)):
            whole = ClientData.from_datasets([test])
            test = (whole.inputs, whole.targets)
        data = ClientData(test[0], torch.as_tensor(test[1]), np.array([0, len(test[0])]))
    except InputError as empty:
        raise InputError("test", empty.value, empty.remedy) from None
    if data.inputs.shape[1:] != problem.data.inputs.shape[1:]:
        raise InputError(
            "test",
            tuple(data.inputs.shape),
            f"samples must have the clients' shape {tuple(problem.data.inputs.shape[1:])}",
        )
    dtype = problem.layout.dtype

    def placed(tensor: Tensor) -> Tensor:
        real = tensor.is_floating_point()
        return tensor.to(problem.device, dtype if real else torch.int64).contiguous()

    inputs, targets = placed(data.inputs), placed(data.targets)
    try:
        check_fit(problem.model, problem.loss, ClientData(inputs, targets, data.offsets))
    except InputError as misfit:
        raise InputError(f"test: {misfit.field}", misfit.value, misfit.remedy) from None
    return inputs, targets
