"""The fast engine: compiled local updates, a client a thread, on top of the matrices of models."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.engines.fast.compiled import compile_model
from sdfeel.engines.fast.errors import Unsupported
from sdfeel.engines.matrix import MatrixEngine
from sdfeel.training.engine import Mask, Problem

__all__ = ["FastEngine"]


class FastEngine(MatrixEngine):
    """All iterations until the next aggregation in one call, without Python in between.

    It uses as many threads as torch is set to use (`torch.set_num_threads`, OMP_NUM_THREADS).
    """

    name = "fast"

    def __init__(self, problem: Problem, start: Tensor) -> None:
        if problem.device.type != "cpu":
            raise Unsupported(f"it runs on the processor, not on {problem.device}")
        if problem.layout.names != tuple(name for name, _ in problem.model.named_parameters()):
            raise Unsupported("the model has buffers or frozen parameters")
        sample = tuple(problem.data.inputs.shape[1:])
        self._compiled = compile_model(
            problem.model,
            problem.loss,
            sample,
            problem.layout.dtype,
            batch_size=problem.batch_size,
        )
        super().__init__(problem, start)

    def local_updates(self, first: int, last: int, present: Mask) -> NDArray[np.float64]:
        clients = np.flatnonzero(present)
        if not len(clients):
            return np.empty((0, last - first + 1))
        data = self.problem.data
        return self._compiled.local_updates(
            clients,
            self.problem.client_ids[clients],
            data.inputs,
            data.targets,
            data.offsets,
            seed=self.problem.seed,
            batch_size=self.problem.batch_size,
            first=np.full(len(clients), first),
            last=np.full(len(clients), last),
            rates=np.full(last - first + 1, self.problem.lr),
            first_rate=first,
            start=(self.W, clients),
            out=(self.W, clients),
            threads=torch.get_num_threads(),
        )

    def predict(self, model: Tensor, inputs: Tensor) -> Tensor:
        outputs = self._compiled.forward(
            model.contiguous(), inputs.contiguous(), torch.get_num_threads()
        )
        return torch.from_numpy(outputs)
