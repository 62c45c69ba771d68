"""What a Flower server app would do, as a simulation asks for it: round by round."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from sdfeel.flower.client import Keys
from sdfeel.flower.generators import seeded
from sdfeel.flower.strategies import Meaning

__all__ = ["LegacyStart", "MessageStart", "Plan", "as_task"]

Config = Mapping[str, Any]
USUAL = Keys()


@dataclass(frozen=True, eq=False)
class Plan:
    """What a server app would do.

    strategy     the name of its class
    initial      the first model: arrays by name, or a list; None: a client has it
    rounds       how many
    train        what clients are told in a round when they train, by the round's number
    evaluate     the same when they evaluate; None: they do not
    measure      (round, arrays) -> metrics of the server's own evaluation; None: it has none
    settings     what the strategy means as settings of a run
    notes        what differs from Flower, in sentences
    """

    strategy: str
    initial: Any
    rounds: int
    train: Callable[[int], Config]
    evaluate: Callable[[int], Config] | None
    measure: Callable[[int, ArrayRecord], Mapping[str, Any]] | None
    keys: Keys = USUAL
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@contextmanager
def as_task() -> Iterator[None]:
    """Let messages be made in this process, which is no task of Flower's; nothing is logged."""
    names, log = ("_task_id", "_run_id", "_node_id"), logging.getLogger("flwr")
    before, level = [vars(TaskIdentity)[name] for name in names], log.level
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)
        for name, value in zip(names, before, strict=True):
            setattr(TaskIdentity, name, value)


class _Configs:
    """What clients are told round by round: a strategy is asked once for each, in order."""

    def __init__(self, ask: Callable[[int], Config], clients: int, seed: int) -> None:
        self._ask, self._clients, self._seed = ask, clients, seed
        self._known = list[Config]()

    def __call__(self, number: int) -> Config:
        while len(self._known) < number:
            following = len(self._known) + 1
            with as_task(), seeded(self._seed, self._clients, following):
                self._known.append(dict(self._ask(following)))
        return self._known[number - 1] if number > 0 else {}


@dataclass(frozen=True, eq=False)
class MessageStart:
    """A strategy of the message API, and the arguments of its `start`."""

    strategy: Any
    given: Mapping[str, Any]

    def plan(self, grid: Any, clients: int, seed: int, meaning: Meaning) -> Plan:
        strategy, arrays = self.strategy, self.given["initial_arrays"]
        config = self.given["train_config"] or ConfigRecord()
        fields = ("arrayrecord_key", "configrecord_key", "weighted_by_key")
        usual = (USUAL.arrays, USUAL.config, USUAL.weight)
        names = Keys(*map(partial(getattr, strategy), fields, usual))
        grid.nodes = max([clients, *_least(strategy)])  # or it waits for them

        def train(number: int) -> Config:
            messages = strategy.configure_train(number, arrays, config, grid)
            return _first(message.content[names.config] for message in messages)

        looks = getattr(strategy, "fraction_evaluate", 1.0) > 0
        test_config = dict(self.given["evaluate_config"] or {})
        function = self.given["evaluate_fn"]
        return Plan(
            strategy=type(strategy).__name__,
            initial={name: array.numpy() for name, array in arrays.items()},
            rounds=self.given["num_rounds"],
            train=_Configs(train, clients, seed),
            evaluate=(lambda _: test_config) if looks else None,
            measure=None if function is None else lambda r, a: dict(function(r, a) or {}),
            keys=names,
            settings=meaning.settings,
            notes=meaning.notes,
        )


@dataclass(frozen=True, eq=False)
class LegacyStart:
    """A strategy for NumPyClient and Client, and how many rounds it has."""

    strategy: Any
    rounds: int

    def plan(self, _: Any, clients: int, seed: int, meaning: Meaning) -> Plan:
        strategy = self.strategy
        manager = _Manager(max([clients, *_least(strategy)]))
        first = strategy.initialize_parameters(manager)
        arrays = None if first is None else parameters_to_ndarrays(first)
        parameters = ndarrays_to_parameters(arrays or [])

        def train(number: int) -> Config:
            return _first(
                ins.config for _, ins in strategy.configure_fit(number, parameters, manager)
            )

        def evaluate(number: int) -> Config:
            function = getattr(strategy, "on_evaluate_config_fn", None)
            return {} if function is None else dict(function(number))

        def measure(number: int, record: ArrayRecord) -> Mapping[str, Any]:
            values: list[NDArray[Any]] = [np.asarray(a.numpy()) for a in record.values()]
            measured = strategy.evaluate(number, ndarrays_to_parameters(values))
            return {} if measured is None else {"loss": measured[0], **measured[1]}

        has_own = getattr(strategy, "evaluate_fn", None) is not None
        looks = getattr(strategy, "fraction_evaluate", 1.0) > 0
        return Plan(
            strategy=type(strategy).__name__,
            initial=arrays,
            rounds=self.rounds,
            train=_Configs(train, clients, seed),
            evaluate=_Configs(evaluate, clients, seed) if looks else None,
            measure=measure if has_own else None,
            settings=meaning.settings,
            notes=meaning.notes,
        )


class _Manager:
    """Clients, as legacy strategies sample them."""

    def __init__(self, clients: int) -> None:
        self._clients = clients

    def num_available(self) -> int:
        return self._clients

    def sample(self, num_clients: int, **_: Any) -> list[None]:
        return [None] * num_clients


def _least(strategy: Any) -> list[int]:
    """How many nodes a strategy waits for."""
    return [v for n, v in vars(strategy).items() if n.startswith("min_") and isinstance(v, int)]


def _first(configs: Iterable[Config]) -> Config:
    """What the first of the clients is told; a round's number is told in any case."""
    config = next(iter(configs), {})
    return {name: value for name, value in config.items() if name != "server-round"}
