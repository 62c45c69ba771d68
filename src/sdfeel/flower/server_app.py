"""A Flower `ServerApp`, read: what it would start, without starting it.

Its `main` runs up to `strategy.start(...)`, which says the first model, the rounds, what clients
are told and what is measured on the server. From there on the simulation takes over.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.supercore.task_identity import TaskIdentity
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.flower.client import Keys
from sdfeel.flower.strategies import meaning_of
from sdfeel.importing import imported

__all__ = ["Plan", "read_server_app"]

START = Strategy.start
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


def read_server_app(
    path: str, folder: Path, run_config: Config, clients: int, is_free: bool = False
) -> Plan:
    """Run the server app at an import path up to its start, and return what it would start.

    Args:
        clients: how many nodes it finds.
        is_free: whether the user chose what stands in place of the strategy's averaging.

    Raises:
        InputError: it does not start a strategy, or one that cannot be carried out here.
    """
    app = imported("flower.server", path, folder)
    if not isinstance(app, ServerApp):
        remedy = "must be a flwr.serverapp.ServerApp"
        raise InputError("flower.server", path, remedy)
    context = Context(
        run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(run_config)
    )
    grid = _Grid(path, clients)
    with _identity():
        started = _started(app, grid, context)
    if started is None:
        raise InputError(
            "flower.server",
            path,
            "ends without `strategy.start(...)`: it sends messages of its own, and here clients "
            "train a model that servers average",
        )
    meaning = meaning_of(started.strategy, clients, is_free)
    return started.plan(grid, clients, meaning.settings, meaning.notes)


class _Start(BaseException):
    """Ends a server app where it would start; no `except Exception` of an app catches it."""

    def __init__(self, started: _Message | _Legacy) -> None:
        super().__init__()
        self.started = started


def _started(app: ServerApp, grid: _Grid, context: Context) -> _Message | _Legacy | None:
    if app._main is None:
        with app._lifespan(context):
            made = app._server_fn(context) if app._server_fn is not None else app
            config, strategy = (
                getattr(made, f"_{name}", getattr(made, name, None))
                for name in ("config", "strategy")
            )
            if strategy is None:
                from flwr.server.strategy import FedAvg

                strategy = FedAvg()
            return _Legacy(strategy, getattr(config, "num_rounds", 1))
    try:
        with _caught():
            app(grid, context)
    except _Start as start:
        return start.started
    return None


@contextmanager
def _caught() -> Iterator[None]:
    """End whoever starts a strategy or a workflow, also one with a `start` of its own."""

    def start(self: Strategy, *args: Any, **named: Any) -> None:
        given = inspect.signature(START).bind(self, *args, **named)
        given.apply_defaults()
        raise _Start(_Message(self, given.arguments))

    def workflow(self: DefaultWorkflow, _: Any, context: Any) -> None:
        if type(self.fit_workflow).__name__.startswith("SecAgg"):
            raise InputError(
                "flower.server",
                type(self.fit_workflow).__name__,
                "secure aggregation needs messages between Flower's own server and clients that "
                "are not exchanged here",
            )
        raise _Start(_Legacy(context.strategy, context.config.num_rounds))

    family = [Strategy, *_subclasses(Strategy)]
    places: list[tuple[type, str, Any]] = [
        (kind, "start", start) for kind in family if "start" in vars(kind)
    ]
    places.append((DefaultWorkflow, "__call__", workflow))
    before = [vars(kind)[name] for kind, name, _ in places]
    try:
        for kind, name, function in places:
            setattr(kind, name, function)
        yield
    finally:
        for (kind, name, _), function in zip(places, before, strict=True):
            setattr(kind, name, function)


def _subclasses(kind: type) -> Iterator[type]:
    subclasses: list[type] = kind.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)


@contextmanager
def _identity() -> Iterator[None]:
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


class _Grid:
    """Has nodes, and sends nothing."""

    def __init__(self, path: str, nodes: int) -> None:
        self._path, self.nodes = path, nodes

    def get_node_ids(self) -> list[int]:
        return list(range(2, 2 + self.nodes))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise InputError(
            "flower.server",
            self._path,
            f"uses `grid.{name}` before it starts a strategy: messages of its own are not sent "
            "here, where clients train a model that servers average",
        )


class _Configs:
    """What clients are told round by round: a strategy is asked once for each, in order."""

    def __init__(self, ask: Callable[[int], Config]) -> None:
        self._ask, self._known = ask, list[Config]()

    def __call__(self, number: int) -> Config:
        while len(self._known) < number:
            with _identity():
                self._known.append(dict(self._ask(len(self._known) + 1)))
        return self._known[number - 1] if number > 0 else {}


@dataclass(frozen=True, eq=False)
class _Message:
    """A strategy of the message API, and the arguments of its `start`."""

    strategy: Any
    given: Mapping[str, Any]

    def plan(self, grid: _Grid, clients: int, settings: Config, notes: tuple[str, ...]) -> Plan:
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
            train=_Configs(train),
            evaluate=(lambda _: test_config) if looks else None,
            measure=None if function is None else lambda r, a: dict(function(r, a) or {}),
            keys=names,
            settings=settings,
            notes=notes,
        )


@dataclass(frozen=True, eq=False)
class _Legacy:
    """A strategy for NumPyClient and Client, and how many rounds it has."""

    strategy: Any
    rounds: int

    def plan(self, _: _Grid, clients: int, settings: Config, notes: tuple[str, ...]) -> Plan:
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
            train=_Configs(train),
            evaluate=_Configs(evaluate) if looks else None,
            measure=measure if has_own else None,
            settings=settings,
            notes=notes,
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
