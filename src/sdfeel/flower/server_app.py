"""A Flower `ServerApp`, read: what it would start, without starting it.

Its `main` runs up to `strategy.start(...)`, which says the first model, the rounds, what clients
are told and what is measured on the server. From there on the simulation takes over.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict
from flwr.server.workflow import DefaultWorkflow
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy

from sdfeel.errors import InputError
from sdfeel.flower.generators import seeded
from sdfeel.flower.plan import LegacyStart, MessageStart, Plan, as_task
from sdfeel.flower.strategies import meaning_of
from sdfeel.importing import imported

__all__ = ["read_server_app"]

START = Strategy.start


def read_server_app(
    path: str,
    folder: Path,
    run_config: Mapping[str, Any],
    clients: int,
    seed: int = 0,
    is_free: bool = False,
) -> Plan:
    """Run the server app at an import path up to its start, and return what it would start.

    Args:
        clients: how many nodes it finds.
        seed: what it draws is a function of it.
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
    with as_task(), seeded(seed, clients, 0):
        started = _started(app, grid, context)
    if started is None:
        raise InputError(
            "flower.server",
            path,
            "ends without `strategy.start(...)`: it sends messages of its own, and here clients "
            "train a model that servers average",
        )
    meaning = meaning_of(started.strategy, clients, is_free)
    return started.plan(grid, clients, seed, meaning)


class _Start(BaseException):
    """Ends a server app where it would start; no `except Exception` of an app catches it."""

    def __init__(self, started: MessageStart | LegacyStart) -> None:
        super().__init__()
        self.started = started


def _started(app: ServerApp, grid: _Grid, context: Context) -> MessageStart | LegacyStart | None:
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
            return LegacyStart(strategy, getattr(config, "num_rounds", 1))
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
        raise _Start(MessageStart(self, given.arguments))

    def workflow(self: DefaultWorkflow, _: Any, context: Any) -> None:
        if type(self.fit_workflow).__name__.startswith("SecAgg"):
            raise InputError(
                "flower.server",
                type(self.fit_workflow).__name__,
                "secure aggregation needs messages between Flower's own server and clients that "
                "are not exchanged here",
            )
        raise _Start(LegacyStart(context.strategy, context.config.num_rounds))

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
