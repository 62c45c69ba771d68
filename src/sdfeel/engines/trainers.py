"""Local updates by trainers of the user's own, one for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.trainer import (
    BeginningTrainer,
    MeasuringTrainer,
    RememberingTrainer,
    Trainer,
)
from sdfeel.engines.engine import Engine, Work
from sdfeel.engines.plain import PlainUpdates
from sdfeel.engines.problem import Problem
from sdfeel.errors import InputError, RunError
from sdfeel.trees import Tree


def check_trainers(trainers: Any) -> None:
    """Raise InputError unless they are a list of trainers."""
    if not isinstance(trainers, Sequence) or isinstance(trainers, str):
        raise InputError("trainers", trainers, "a list with a trainer for each client")
    for client, trainer in enumerate(trainers):
        for wanted in ("samples", "size", "train"):
            if not hasattr(trainer, wanted):
                remedy = (
                    f"has no `{wanted}`: a trainer has samples, size and train(model, first, steps)"
                )
                raise InputError(f"trainers[{client}]", type(trainer).__name__, remedy)


class TrainerEngine(Engine):
    """Asks client i's trainer; what it does inside is its own business."""

    name = "trainers"
    tells_losses = False

    def __init__(self, problem: Problem, trainers: Sequence[Trainer]) -> None:
        self.problem = problem
        self._trainers = trainers
        self._evaluation = PlainUpdates(problem)
        self._minds = {n: t for n, t in enumerate(trainers) if isinstance(t, RememberingTrainer)}
        self.can_restart = not self._minds
        if len(trainers) != problem.data.clients:
            remedy = f"one for each of the {problem.data.clients} clients"
            raise InputError("trainers", len(trainers), remedy)
        for client, trainer in enumerate(trainers):
            if trainer.size != problem.layout.size:
                remedy = f"its model must have {problem.layout.size} values, as `model` has"
                raise InputError(f"trainers[{client}].size", trainer.size, remedy)
            if trainer.samples != problem.data.samples[client]:
                remedy = f"client {client} holds {problem.data.samples[client]} samples"
                raise InputError(f"trainers[{client}].samples", trainer.samples, remedy)

    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        losses = work.no_losses()
        start, begin = work.start
        counts = (work.last - work.first + 1).tolist()
        calls = list(zip(work.clients.tolist(), work.first.tolist(), counts, strict=True))
        for row, (client, first, steps) in enumerate(calls):
            if isinstance(trainer := self._trainers[client], BeginningTrainer):
                trainer.begin(start[int(begin[row])].numpy(), first, steps)
        for row, (client, first, steps) in enumerate(calls):
            trainer = self._trainers[client]
            work.look_up()
            sent = start[int(begin[row])].numpy().copy()
            try:
                back = np.asarray(trainer.train(sent, first, steps))
            except Exception as problem:
                problem.add_note(f"from the trainer of client {client}, iteration {first}")
                raise
            if back.shape != sent.shape or not np.isfinite(back).all():
                raise RunError(
                    f"the trainer of client {client} gave back {back.dtype}{list(back.shape)} at "
                    f"iteration {first}: {len(sent)} finite values are needed"
                )
            models[row] = torch.from_numpy(back).to(models.dtype)
            if isinstance(trainer, MeasuringTrainer):
                losses[row, :steps] = trainer.measures.get("batch_loss", np.nan)
        return losses

    def remember(self) -> dict[str, Tensor]:
        memories = {client: mind.remember() for client, mind in self._minds.items()}
        return {
            f"trainers.{client}": torch.frombuffer(bytearray(memory), dtype=torch.uint8)
            for client, memory in memories.items()
            if memory
        }

    def recall(self, tensors: Mapping[str, Tensor]) -> None:
        for client, mind in self._minds.items():
            if (memory := tensors.get(f"trainers.{client}")) is not None:
                mind.recall(memory.numpy().tobytes())

    def close(self) -> None:
        for trainer in self._trainers:
            if isinstance(trainer, BeginningTrainer):
                trainer.close()

    def predict(self, model: Tensor, inputs: Tree) -> Tree:
        return self._evaluation.predict(model, inputs)
