"""A client's local updates with PyTorch: the core's own SGD step on one client's data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sdfeel.data import ClientData
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import Constant, Layout, write_model
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.node.client import Model, Trained
from sdfeel.deploy.node.measuring import Measuring
from sdfeel.deploy.node.trainers import imported
from sdfeel.engines.reference import sgd_step
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.training.evaluation import subset
from sdfeel.training.parameters import ParameterLayout
from sdfeel.training.setup import make_problem

__all__ = ["TorchTrainer", "trainer", "write_initial", "write_module"]

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def trainer(deployment: Deployment, client: str) -> TorchTrainer:
    """Plain SGD on `local.model()` and `local.data(name, number, **options)`."""
    local = deployment.local
    number = [c.name for c in deployment.clients].index(client)
    model = imported("local.model", local.model, deployment.folder)()
    data = imported("local.data", local.data, deployment.folder)(client, number, **local.options)
    return TorchTrainer(
        model,
        data,
        number,
        deployment.seed,
        local.lr,
        local.batch_size,
        Measuring.of(deployment),
        deployment.evaluate_every if deployment.evaluation.samples else 0,
        deployment.evaluation.samples,
    )


def write_initial(deployment: Deployment, model: torch.nn.Module | None = None) -> Path:
    """Makes the file that everybody starts from: `model`, or `local.model` with the seed."""
    if model is None:
        if not deployment.local.model:
            example = 'model = "my_project:make_model" in the [local] table'
            raise InputError(
                "local.model", "", f"name the function that makes the model: {example}"
            )
        torch.manual_seed(deployment.seed)
        model = imported("local.model", deployment.local.model, deployment.folder)()
    path = deployment.path(deployment.model.initial)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_module(path, model)
    return path


def write_module(path: Path, model: torch.nn.Module) -> None:
    """A model file of the module: the trained vector, and what else its state dict holds.

    hidden  in the vector and not in the state dict (buffers that are not persistent)
    tied    second names of weights in the vector
    """
    found = ParameterLayout.of(model)
    layout = Layout(found.names, tuple(tuple(shape) for shape in found.shapes))
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    places = {id(own[name]): name for name in found.names}
    state = model.state_dict(keep_vars=True)
    tied = {name: places[id(t)] for name, t in state.items() if places.get(id(t), name) != name}
    constants = {name: _constant(t) for name, t in state.items() if id(t) not in places}
    notes = {
        "hidden": json.dumps([name for name in found.names if name not in state]),
        "tied": json.dumps(tied),
    }
    vector = as_vector(found.vector(model).float().cpu().numpy())
    write_model(path, layout, vector, notes, constants=constants)


def _constant(tensor: torch.Tensor) -> Constant:
    flat = tensor.detach().cpu().contiguous()
    kind = DTYPES[flat.dtype]
    return Constant(kind, tuple(flat.shape), flat.reshape(-1).view(torch.uint8).numpy().tobytes())


class TorchTrainer:
    """Eq. (2) for one client, as the reference engine carries it out.

    every    iterations between two looks at the model that it is given; 0: none
    samples  of its own that it looks at
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data: Any,
        number: int,
        seed: int,
        lr: float,
        batch_size: int,
        measuring: Measuring | None = None,
        every: int = 0,
        samples: int = 1000,
    ) -> None:
        torch.set_num_threads(1)
        self._model = model
        self._measuring = measuring or Measuring()
        self._every = every
        whole = make_problem(
            model,
            ClientData.from_datasets([data]),
            Network([[0]]),
            loss=self._measuring.loss,
            lr=lr,
            batch_size=batch_size,
            seed=seed,
            device=torch.device("cpu"),
        )
        # The batches are drawn by the client's number among all, from a store with its data alone.
        self._problem = dataclasses.replace(whole, held=np.array([number]))
        self._part = subset(self._problem.data.client(0), samples)

    @property
    def samples(self) -> int:
        return int(self._problem.data.samples[0])

    @property
    def size(self) -> int:
        return self._problem.layout.size

    def train(self, model: Model, first: int, steps: int) -> Trained:
        """The batches are those that the simulator would draw for this client."""
        layout = self._problem.layout
        layout.load(self._model, torch.from_numpy(np.array(model)))
        measures = self._look() if self._is_due(first, steps) else {}
        self._model.train()
        losses = [sgd_step(self._problem, self._model, 0, k) for k in range(first, first + steps)]
        trained = layout.vector(self._model).float().numpy()
        return Trained(trained, {"batch_loss": sum(losses) / len(losses), **measures})

    def _is_due(self, first: int, steps: int) -> bool:
        """At the start, and in the first period that begins at a multiple of `every` or later."""
        if not self._every:
            return False
        before = first - 1
        return before == 0 or before // self._every > (before - steps) // self._every

    def _look(self) -> dict[str, float]:
        """F_i of the model that it was given; the mean over all clients is the training loss."""
        found = self._measuring(self._model, *self._part)
        return {f"train_{name}": value for name, value in found.items()}
