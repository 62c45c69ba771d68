"""A Flower client behind the seam that every trainer stands at, in simulation and deployment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sdfeel.errors import RunError
from sdfeel.flower.apps import evaluates
from sdfeel.flower.arrays import Vector
from sdfeel.flower.client import FlowerClient

__all__ = ["FlowerTrainer", "column"]

PREFIX = re.compile(r"^(train|training|eval|evaluate|evaluation|test|val|valid|validation)[_-]")


def column(kind: str, name: str) -> str:
    """`batch_loss` for a loss that `train` told, `test_accuracy` for what `evaluate` did."""
    short = re.sub(r"[^a-z0-9_-]", "_", PREFIX.sub("", name.lower()))[:40].lstrip("_-") or "metric"
    return f"{kind}_{'accuracy' if short == 'acc' else short}"


class FlowerTrainer:
    """One call of the app's `train` for every upload period: a round of Flower's.

    samples   what the app must say as num-examples, every time: weights do not change in a run
    config    sent with every call, beside server-round, local-steps and lr
    rate      eta_k: the app is told that of its first iteration, as `lr`
    look      whether the app's `evaluate` is asked first, in a period that begins after so many
              iterations and is so many long
    round_of  the number of the period that begins with an iteration and is so many long; in a
              deployment all are equally long
    rounds    how many were made, as far as this client knows
    """

    def __init__(
        self,
        client: FlowerClient,
        samples: int,
        rate: Callable[[int], float],
        config: Mapping[str, Any] | None = None,
        look: Callable[[int, int], bool] = lambda *_: False,
        round_of: Callable[[int, int], int] = lambda first, steps: (first - 1) // steps + 1,
    ) -> None:
        self.client, self._samples, self._rate = client, samples, rate
        self._config, self._look, self._round_of = dict(config or {}), look, round_of
        self.rounds, self.first = 0, 1
        self._measures: dict[str, float] = {}

    @property
    def samples(self) -> int:
        return self._samples

    @property
    def size(self) -> int:
        return self.client.layout.size

    @property
    def measures(self) -> Mapping[str, float]:
        """What the app told, the loss of its training as `batch_loss`."""
        return self._measures

    def train(self, model: Vector, first: int, steps: int) -> Vector:
        number = self._round_of(first, steps)
        config = {"local-steps": steps, "lr": self._rate(first), **self._config}
        looked = self.evaluate(model, number - 1, first) if self._look(first - 1, steps) else {}
        answer = self.client.train(model, number, config)
        if answer.examples != self._samples:
            raise RunError(
                f"Flower app of client {self.client.name}, `train` of round {number}: num-examples "
                f"= {answer.examples}, and {self._samples} were expected: weights do not change "
                "during a run"
            )
        self.rounds, self.first = number, first + steps
        told = {column("batch", name): value for name, value in answer.metrics.items()}
        self._measures = told | {name: value for name, (value, _) in looked.items()}
        assert answer.model is not None  # noqa: S101 - as `train` says
        return answer.model

    def evaluate(self, model: Vector, number: int, first: int) -> dict[str, tuple[float, int]]:
        """What the app's `evaluate` says of a model: name -> (value, num-examples)."""
        if not evaluates(self.client.app):
            return {}
        config = {"lr": self._rate(first), **self._config}
        answer = self.client.evaluate(model, number, config)
        if answer is None:
            return {}
        return {column("test", n): (v, answer.examples) for n, v in answer.metrics.items()}

    def remember(self) -> bytes:
        return self.client.remember()

    def recall(self, memory: bytes) -> None:
        self.client.recall(memory)
