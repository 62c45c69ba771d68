"""The samples on which a run is evaluated."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.data.clients import ClientData
from sdfeel.engines.fit import check_fit
from sdfeel.engines.problem import Problem, placed
from sdfeel.errors import InputError, located
from sdfeel.simulation.evaluation import Samples, some_rows
from sdfeel.trees import Pixels, Tree, leaves


def train_samples(problem: Problem, samples: NDArray[np.int64], count: int | None) -> Samples:
    """The part of the evaluated training samples that this rank holds: the same rows over all
    clients, whatever the number of ranks.
    """
    total = int(samples.sum())
    if problem.client_numbers is None and (count is None or count >= total):
        return problem.data.stored(slice(None))  # all as they lie there: not another time
    rows = some_rows(total, count)
    ends = np.cumsum(samples)
    client = np.searchsorted(ends, rows, side="right")
    within = rows - (ends - samples)[client]
    position = np.full(len(samples), -1)
    position[problem.client_ids] = np.arange(problem.data.clients)
    here = position[client] >= 0
    chosen = torch.from_numpy(problem.data.offsets[position[client[here]]] + within[here])
    return problem.data.stored(chosen)


def test_samples(test: Any, problem: Problem, is_apart: bool) -> Samples | None:
    """Check what a user gives to test on: like the clients' data, unless only trainers see it."""
    if test is None:
        return None
    try:
        data = ClientData.from_datasets([test])
    except InputError as mistake:
        raise InputError("test", mistake.value, mistake.remedy) from None
    like = data if is_apart else problem.data
    shapes_here, clients = ([tuple(t.shape[1:]) for t in leaves(d.inputs)] for d in (data, like))
    if shapes_here != clients:
        shapes = [tuple(tensor.shape) for tensor in leaves(data.inputs)]
        raise InputError(
            "test",
            shapes[0] if len(shapes) == 1 else shapes,
            f"samples must have the clients' shape {clients[0] if len(clients) == 1 else clients}",
        )
    dtype, device = problem.layout.dtype, problem.device
    trees = (_scaled_as(like.inputs, data.inputs), data.targets)
    inputs, targets = (placed(tree, dtype, device) for tree in trees)
    with located("test: "):
        check_fit(problem.model, problem.loss, ClientData(inputs, targets, data.offsets))
    return inputs, targets


def _scaled_as(clients: Tree, test: Tree) -> Tree:
    """Bytes to test on stand for what the clients' bytes do."""
    if isinstance(clients, Pixels) and isinstance(test, torch.Tensor) and test.dtype == torch.uint8:
        return Pixels(test, clients.mean, clients.std)
    return test
