"""A client's local updates with PyTorch: the core's own SGD step on one client's data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.algorithm.rates import Constant
from sdfeel.data import ClientData
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.node.client import Model
from sdfeel.deploy.node.trainers import imported
from sdfeel.simulation.engines.engine import Work
from sdfeel.simulation.engines.plain import PlainUpdates
from sdfeel.simulation.parameters import ParameterLayout
from sdfeel.simulation.problem import make_problem

__all__ = ["TorchTrainer", "trainer", "write_initial"]


def trainer(deployment: Deployment, client: str) -> TorchTrainer:
    """Plain SGD on `local.model()` and `local.data(name, number, **options)`."""
    local = deployment.local
    number = [c.name for c in deployment.clients].index(client)
    model = imported("local.model", local.model)()
    data = imported("local.data", local.data)(client, number, **local.options)
    return TorchTrainer(model, data, number, deployment.seed, local.lr, local.batch_size)


def write_initial(deployment: Deployment, model: torch.nn.Module | None = None) -> Path:
    """Makes the file that everybody starts from: `model`, or `local.model` with the seed."""
    if model is None:
        torch.manual_seed(deployment.seed)
        model = imported("local.model", deployment.local.model)()
    layout = ParameterLayout.of(model)
    path = deployment.path(deployment.model.initial)
    path.parent.mkdir(parents=True, exist_ok=True)
    vector = as_vector(layout.vector(model).numpy())
    write_safetensors(path, vector, {"names": " ".join(layout.names)})
    return path


class TorchTrainer:
    """Eq. (2) for one client, as the reference engine carries it out."""

    def __init__(
        self,
        model: torch.nn.Module,
        data: Any,
        number: int,
        seed: int,
        lr: float,
        batch_size: int,
    ) -> None:
        torch.set_num_threads(1)
        # The batches are drawn by the client's number among all, from a store with its data alone.
        self._problem = make_problem(
            model,
            ClientData.from_datasets([data]),
            batch_size=batch_size,
            seed=seed,
            rate=Constant(lr),
            held=np.array([number]),
        )
        self._updates = PlainUpdates(self._problem)

    @property
    def samples(self) -> int:
        return int(self._problem.data.samples[0])

    @property
    def size(self) -> int:
        return self._problem.layout.size

    def train(self, model: Model, first: int, steps: int) -> Model:
        """The batches are those that the simulator would draw for this client."""
        row = torch.from_numpy(np.array(model))[None]
        one = np.ones(1, dtype=np.int64)
        work = Work(0 * one, first * one, (first + steps - 1) * one)
        self._updates.carry_out(row, None, work)
        trained: NDArray[np.float32] = row[0].numpy()
        return trained
