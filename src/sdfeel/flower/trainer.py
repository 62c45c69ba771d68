"""A Flower client behind the seam that every trainer stands at, in simulation and deployment."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import RecordDict

from sdfeel.errors import RunError
from sdfeel.flower.apps import evaluates
from sdfeel.flower.arrays import Vector
from sdfeel.flower.client import Answer, FlowerClient
from sdfeel.flower.processes import Calls, Pending

__all__ = ["FlowerTrainer", "column"]

PREFIX = re.compile(r"^(train|training|eval|evaluate|evaluation|test|val|valid|validation)[_-]")
Config = Mapping[str, Any]

logger = logging.getLogger("sdfeel")


def column(kind: str, name: str) -> str:
    """Name a column: `batch_loss` for a loss of `train`, `test_accuracy` for one of `evaluate`."""
    short = re.sub(r"[^a-z0-9_-]", "_", PREFIX.sub("", name.lower()))[:40].lstrip("_-") or "metric"
    return f"{kind}_{'accuracy' if short == 'acc' else short}"


@dataclass(frozen=True, eq=False)
class _First:
    """The reply to round 1, with what was sent, and the state after it."""

    model: Vector
    config: Config
    answer: Answer
    state: RecordDict

    def fits(self, model: Vector, config: Config) -> bool:
        """Whether it is the reply to this model and config."""
        return config == self.config and np.array_equal(model, self.model)


class FlowerTrainer:
    """One call of the app's `train` for every upload period: a round of Flower's.

    Args:
        samples: what the app must report as num-examples, every time: weights do not change in a
            run. None until its first reply says it.
        rate: eta_k; the app gets that of a period's first iteration as `lr`.
        train: what it gets beside server-round, local-steps and lr, by the number of the round.
        test: the same for its `evaluate`; None: it is not asked to evaluate.
        look: whether the app's `evaluate` is asked first, in a period that begins after so many
            iterations and is so many long.
        round_of: the number of the period that begins with an iteration and is so many long; in a
            deployment all are equally long.
        calls: carries calls out side by side; by default one after the other.

    rounds and first are the number of rounds made, as far as this client knows, and the iteration
    that comes next.
    """

    def __init__(
        self,
        client: FlowerClient,
        samples: int | None,
        rate: Callable[[int], float],
        train: Callable[[int], Config] = lambda _: {},
        test: Callable[[int], Config] | None = lambda _: {},
        look: Callable[[int, int], bool] = lambda *_: False,
        round_of: Callable[[int, int], int] = lambda first, steps: (first - 1) // steps + 1,
        calls: Calls | None = None,
    ) -> None:
        self.client, self._samples, self._rate = client, samples, rate
        self._train, self._test, self._look, self._round_of = train, test, look, round_of
        self._calls = Calls([client], 1) if calls is None else calls
        self.rounds, self.first = 0, 1
        self._measures: dict[str, float] = {}
        self._begun: tuple[tuple[int, int], Pending] | None = None
        self._first: _First | None = None

    @property
    def samples(self) -> int:
        assert self._samples is not None  # noqa: S101 - `ask` comes before everything else
        return self._samples

    @property
    def size(self) -> int:
        return self.client.layout.size

    @property
    def measures(self) -> Mapping[str, float]:
        """What the app reported, the loss of its training as `batch_loss`."""
        return self._measures

    def ask(self, model: Vector, steps: int, keeps: bool = True) -> Callable[[], None]:
        """Begin round 1, whose reply says num-examples; it is kept until round 1 is due.

        If the client gets another model by then, or takes no part, the reply is dropped, and the
        state that came with it; without `keeps` it is dropped in any case.
        """
        config = self._config(1, 1, steps)
        begun = self._calls.begin(self.client, "train", model, 1, config)

        def end() -> None:
            answer = begun()
            assert answer is not None  # noqa: S101 - as `train` says
            self._samples = answer.examples
            if keeps:
                self._first = _First(model, config, answer, self.client.state)
            self.client.state = RecordDict()

        return end

    def begin(self, model: Vector, first: int, steps: int) -> None:
        """Begin what `train` with the same arguments waits for."""
        number = self._round_of(first, steps)
        config, reply = self._config(number, first, steps), self._first
        self._first = None
        is_new = number == 1 and not self.client.state
        if reply is not None and is_new and reply.fits(model, config):
            self.client.state = reply.state
            self._begun = ((first, steps), lambda: reply.answer)
            return
        begun = self._calls.begin(self.client, "train", model, number, config)
        self._begun = ((first, steps), begun)

    def train(self, model: Vector, first: int, steps: int) -> Vector:
        number = self._round_of(first, steps)
        looks = self._look(first - 1, steps)
        measured = self.begin_evaluation(model, number - 1, first)() if looks else {}
        if self._begun is None or self._begun[0] != (first, steps):
            self.begin(model, first, steps)
        assert self._begun is not None  # noqa: S101 - `begin` sees to it
        answer, self._begun = self._begun[1](), None
        assert answer is not None  # noqa: S101 - as `train` says
        assert answer.model is not None  # noqa: S101
        if answer.examples != self._samples:
            raise RunError(
                f"Flower app of client {self.client.name}, `train` of round {number}: "
                f"{self.client.keys.weight} = {answer.examples}, and {self._samples} were expected:"
                " weights do not change during a run"
            )
        self._name_dropped("train", answer)
        self.rounds, self.first = number, first + steps
        reported = {column("batch", name): value for name, value in answer.metrics.items()}
        self._measures = reported | {name: value for name, (value, _) in measured.items()}
        return answer.model

    def begin_evaluation(
        self, model: Vector, number: int, first: int
    ) -> Callable[[], dict[str, tuple[float, int]]]:
        """Begin the app's `evaluate` of a model; what it returns gives name -> (value, weight)."""
        if self._test is None or not evaluates(self.client.app):
            return dict
        config = {"lr": self._rate(first), **self._test(number)}
        begun = self._calls.begin(self.client, "evaluate", model, number, config)

        def end() -> dict[str, tuple[float, int]]:
            answer = begun()
            if answer is None:
                return {}
            self._name_dropped("evaluate", answer)
            return {column("test", n): (v, answer.examples) for n, v in answer.metrics.items()}

        return end

    def remember(self) -> bytes:
        return self.client.remember()

    def recall(self, memory: bytes) -> None:
        self.client.recall(memory)

    def close(self) -> None:
        """End the processes that carry out calls."""
        self._calls.close()

    def _config(self, number: int, first: int, steps: int) -> dict[str, Any]:
        return {"local-steps": steps, "lr": self._rate(first), **self._train(number)}

    def _name_dropped(self, kind: str, answer: Answer) -> None:
        """Say once, of all clients whose calls go together, that a metric is not kept."""
        for name, reason in answer.dropped.items():
            if name not in self._calls.named:
                self._calls.named.add(name)
                logger.warning("metric %r of the app's `%s` is not kept: it %s", name, kind, reason)
