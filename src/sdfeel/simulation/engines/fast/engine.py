"""The fast engine: compiled local updates, a client a thread, added up as they come."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.simulation.engines.engine import Engine, Work
from sdfeel.simulation.engines.fast.compiled import compile_model
from sdfeel.simulation.engines.fast.errors import Unsupported
from sdfeel.simulation.problem import Problem

__all__ = ["FastEngine"]


class FastEngine(Engine):
    """All iterations until the next aggregation in one call, without Python in between.

    It uses as many threads as torch is set to use (`torch.set_num_threads`, OMP_NUM_THREADS).
    """

    name = "fast"

    def __init__(self, problem: Problem) -> None:
        if problem.device.type != "cpu":
            raise Unsupported(f"it runs on the processor, not on {problem.device}")
        if problem.layout.names != tuple(name for name, _ in problem.model.named_parameters()):
            raise Unsupported("the model has buffers or frozen parameters")
        if problem.local.affine is None:
            raise Unsupported(f"the local rule {problem.local} is not affine in the gradient")
        self.problem = problem
        sample = tuple(problem.data.inputs.shape[1:])
        self._compiled = compile_model(
            problem.model,
            problem.loss,
            sample,
            problem.layout.dtype,
            batch_size=problem.batch_size,
        )

    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        data = self.problem.data
        W = torch.empty(data.clients, models.shape[1], dtype=models.dtype)
        W[work.clients] = models
        losses = self._compiled.local_updates(
            W,
            work.clients,
            self.problem.client_ids[work.clients],
            data.inputs,
            data.targets,
            data.offsets,
            seed=self.problem.seed,
            first=int(work.first[0]),
            last=int(work.last[0]),
            batch_size=self.problem.batch_size,
            lr=self.problem.rate(1),
            threads=torch.get_num_threads(),
        )
        models.copy_(W[work.clients])
        return losses

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        outputs = self._compiled.forward(
            model.contiguous(), inputs.contiguous(), torch.get_num_threads()
        )
        return torch.from_numpy(outputs)
