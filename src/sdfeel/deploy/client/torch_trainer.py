"""A client's local updates with PyTorch: the core's own SGD step on one client's data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.optimizers import SGD, Optimizer
from sdfeel.algorithm.methods.rates import Rate, rate_of
from sdfeel.algorithm.trainer import Model
from sdfeel.data import ClientData
from sdfeel.deploy.client.measuring import Measuring
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.files import Frozen, Layout, write_model
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.engines.engine import Work
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.plain import PlainUpdates, new_row
from sdfeel.engines.problem import make_problem
from sdfeel.errors import InputError
from sdfeel.importing import imported
from sdfeel.simulation.evaluation import subset

__all__ = ["TorchTrainer", "trainer", "write_initial", "write_module"]

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def trainer(deployment: Deployment, client: str) -> TorchTrainer:
    """The optimizer of `local` on `local.model()` and `local.data(name, number, **options)`."""
    local = deployment.local
    number = [c.name for c in deployment.clients].index(client)
    model = imported("local.model", local.model, deployment.folder)()
    data = imported("local.data", local.data, deployment.folder)(client, number, **local.options)
    return TorchTrainer(
        model,
        data,
        number,
        deployment.seed,
        deployment.lr,
        local.batch_size,
        Measuring.of(deployment),
        deployment.evaluate_every if deployment.evaluation.samples else 0,
        deployment.evaluation.samples,
        local.rule,
        deployment.correction,
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
    arrays = None
    if not isinstance(model, torch.nn.Module):  # of a Flower app: a state dict, a list of arrays
        from sdfeel.flower.modules import module_of

        model, kinds = module_of(None, model)
        arrays = [(name, str(kind)) for name, kind in kinds]
    path = deployment.path(deployment.model.initial)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_module(path, model, arrays)
    return path


def write_module(
    path: Path, model: torch.nn.Module, arrays: Sequence[tuple[str, str]] | None = None
) -> None:
    """A model file of the module: the trained vector, and what else its state dict holds.

    hidden  in the vector and not in the state dict (buffers that are not persistent)
    tied    second names of weights in the vector
    arrays  names and dtypes as a Flower app has them, in order; those of the state dict
    trained  how many values of the vector are trained: behind them are buffers
    """
    found = ParameterLayout.of(model)
    layout = Layout(found.names, tuple(tuple(shape) for shape in found.shapes))
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    places = {id(tensors[name]): name for name in found.names}
    state = model.state_dict(keep_vars=True)
    tied = {name: places[id(t)] for name, t in state.items() if places.get(id(t), name) != name}
    constants = {name: _frozen(t) for name, t in state.items() if id(t) not in places}
    notes = {
        "hidden": json.dumps([name for name in found.names if name not in state]),
        "tied": json.dumps(tied),
        "arrays": json.dumps(arrays or [(name, _kind(t)) for name, t in state.items()]),
        "trained": str(found.parameters),
    }
    vector = as_vector(found.vector(model).float().cpu().numpy())
    write_model(path, layout, vector, notes, constants=constants)


def _kind(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _frozen(tensor: torch.Tensor) -> Frozen:
    flat = tensor.detach().cpu().contiguous()
    kind = DTYPES[flat.dtype]
    return Frozen(kind, tuple(flat.shape), flat.reshape(-1).view(torch.uint8).numpy().tobytes())


class TorchTrainer:
    """Eq. (2) for one client, as the reference engine carries it out.

    every    iterations between two looks at the model that it is given; 0: none
    samples  of its own that it looks at
    correction  shifts its gradients by the rows that `correct` was given last
    rule     what it does with a gradient. What a rule with `memory = "keep"` remembers is here and
             nowhere else: it ends with the process, and has in it work that came too late.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        data: Any,
        number: int,
        seed: int,
        lr: float | Rate,
        batch_size: int,
        measuring: Measuring | None = None,
        every: int = 0,
        samples: int = 1000,
        rule: Optimizer | None = None,
        correction: Method | None = None,
    ) -> None:
        torch.set_num_threads(1)
        self._model = model
        self._measuring = measuring or Measuring()
        self._every = every
        self._measures: dict[str, float] = {}
        # The batches are drawn by the client's number among all, from a store with its data alone.
        self._problem = make_problem(
            model,
            ClientData.from_datasets([data]),
            loss=self._measuring.loss,
            batch_size=batch_size,
            seed=seed,
            chain=Chain(rule or SGD(), () if correction is None else (correction,)),
            rate=rate_of(lr),
            client_numbers=np.array([number]),
        )
        names = self._problem.chain.rows
        like = torch.zeros(1, self._problem.layout.parameters, dtype=self._problem.layout.dtype)
        self._kept = {n: new_row(row, like) for n, row in names.items() if not row.new_each_period}
        self._correction = correction
        self._shared = {name: (like, np.zeros(1, int)) for name in self._problem.chain.shared}
        self._updates = PlainUpdates(self._problem)
        self._part = subset(self._problem.data.client(0), samples)

    @property
    def samples(self) -> int:
        return int(self._problem.data.samples[0])

    @property
    def size(self) -> int:
        return self._problem.layout.size

    @property
    def trained(self) -> int:
        return self._problem.layout.parameters

    def correct(self, rows: Mapping[str, Model]) -> None:
        """The rows of the correction that the next `train` reads."""
        for name, values in rows.items():
            where = f"{self._correction.name}.{name}" if self._correction is not None else name
            row = torch.from_numpy(np.array(values)).to(self._problem.layout.dtype)[None]
            if where in self._problem.chain.shared:
                self._shared[where] = row, np.zeros(1, int)
            elif where in self._kept:
                self._kept[where] = row

    @property
    def measures(self) -> Mapping[str, float]:
        """Of the last `train`: the mean loss of its batches, and what a look has found."""
        return self._measures

    def train(self, model: Model, first: int, steps: int) -> Model:
        """The batches are those that the simulator would draw for this client."""
        torch.set_num_threads(1)  # which holds for the thread that says so
        row = torch.from_numpy(np.array(model)).to(self._problem.layout.dtype)[None]
        measures = self._look(row[0]) if self._is_due(first, steps) else {}
        ones = np.ones(1, dtype=np.int64)
        start = row.clone(), 0 * ones
        last = (first + steps - 1) * ones
        work = Work(0 * ones, first * ones, last, start, self._kept, self._shared)
        losses = self._updates.carry_out(row, work)
        self._measures = {"batch_loss": float(losses.mean()), **measures}
        trained: NDArray[np.float32] = row[0].float().numpy()
        return trained

    def _is_due(self, first: int, steps: int) -> bool:
        """At the start, and in the first period that begins at a multiple of `every` or later."""
        if not self._every:
            return False
        before = first - 1
        return before == 0 or before // self._every > (before - steps) // self._every

    def _look(self, model: torch.Tensor) -> dict[str, float]:
        """F_i of the model that it was given; the mean over all clients is the training loss."""
        self._problem.layout.load(self._model, model)
        measures = self._measuring(self._model, *self._part)
        return {f"train_{name}": value for name, value in measures.items()}
