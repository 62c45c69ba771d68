"""`sdfeel.plan`: the planner for one's own model, data and network, in one call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from torch import nn

from sdfeel.engines.problem import Loss
from sdfeel.errors import InputError, closest
from sdfeel.network import Network
from sdfeel.planner.graphs import planned_on_any
from sdfeel.planner.grid import Choices, choices_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.plan import Plan
from sdfeel.planner.race import Effort, Objective, Tell
from sdfeel.planner.search import recommend
from sdfeel.simulation.arguments import RunSettings
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

__all__ = ["plan", "planned"]

GRAPHS = ("given", "any")
# Settings of a run that have no place in a plan, and why.
CHOSEN = ("schedule", "averager")
UNUSED = {
    "steps": "pilot= and race_iterations= bound it",
    "until": "budget= is the time there is",
    "flower": "an app trains by itself, and the planner needs gradients",
    "run_config": "it is an app's",
    "train_config": "it is an app's",
    "node_config": "it is an app's",
    "processes": "they are an app's",
    "evaluate_every": "it looks as often as it needs",
    "train_samples": "it takes as many as it needs",
    "evaluate_servers": "the mean alone is looked at",
    "checkpoint_seconds": "nothing is kept on the way",
}


def plan(
    model: nn.Module,
    client_datasets: Any,
    *,
    network: Network,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    budget: float | None = None,
    choose: Mapping[str, Any] | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
    partition: str | Sequence[Any] | None = None,
    pilot: int = 2000,
    racers: int = 6,
    race_iterations: int = 30_000,
    graph: str = "given",
    tell: Tell | None = None,
    **settings: Unpack[RunSettings],
) -> Plan:
    """Recommend how to train in the least simulated time: a schedule, an averager, codecs, a
    correction and, where devices differ, a pace; where asked to, an optimizer and its rate.

    One pilot and a few short probes are trained, everything is predicted, and the best few race.

    Args:
        model: any nn.Module; it is not changed.
        client_datasets: as for `sdfeel.train`.
        network: clusters and graph.
        target_loss: the training loss to reach in the least time.
        target_accuracy: the accuracy to reach on `test`, in place of a loss.
        budget: simulated seconds: the least loss within them, or the target at all.
        choose: what to choose from, where it is not the usual: {"tau1": (1, 5, 20)}; also tau2,
            alpha, averager, codecs.up, codecs.down, codecs.between, correction, pace, and optimizer
            with lr: {"optimizer": ("sgd", "momentum"), "lr": (0.01, 0.1)}. One value fixes it.
        loss: as for `sdfeel.train`.
        metrics: as for `sdfeel.train`.
        test: a dataset or (inputs, targets) that no client holds.
        partition: of one dataset for all.
        pilot: at most so many iterations of the pilot.
        racers: candidates in the first race.
        race_iterations: of all races of a budget together; the rest of it is predicted.
        graph: "any" plans also on the graph of the same servers that is predicted to need the
            least, and takes the better plan: its `place.network` is the one to train on.
        tell: called with a line whenever something else is tried; by default it is printed on
            standard error. `logging.getLogger("sdfeel").info` logs it.
        settings: those of `sdfeel.train` that are not chosen here; a codec, a correction or a pace
            that is given is fixed.

    Returns:
        The choice, its settings for `sdfeel.train`, and the evidence: a `Plan`.

    Raises:
        InputError: something that was given cannot be right; nothing is trained.
        RunError: no candidate reaches the target, or everything diverges.

    Example:
        >>> import numpy as np, sdfeel, torch
        >>> rng = np.random.default_rng(0)
        >>> data = [(rng.normal(size=(20, 4)), rng.integers(0, 2, 20)) for _ in range(6)]
        >>> plan = sdfeel.plan(
        ...     torch.nn.Linear(4, 2).double(), data, budget=0.002, pilot=20, racers=1, seed=1,
        ...     network=sdfeel.Network.ring(servers=3, clients_per_server=2),
        ...     choose={"tau1": (1, 5), "tau2": 1}, tell=lambda line: None,
        ... )
        >>> plan.choice.tau2
        1
    """
    for name, value in settings.items():
        if name in CHOSEN:
            raise InputError(name, value, "is what a plan chooses: say from what in choose=")
        if name in UNUSED:
            raise InputError(name, value, f"a plan does not use it: {UNUSED[name]}")
    objective = Objective.of(target_loss, target_accuracy, budget)
    choices, effort = choices_of(choose or {}), Effort(pilot, racers, race_iterations, races=3)
    simulation = Simulation.assemble(
        model,
        client_datasets,
        Settings.of(settings),
        network=network,
        loss=loss,
        metrics=metrics,
        test=test,
        partition=partition,
    )
    return planned(simulation, objective, choices, effort, tell or _print, graph)


def planned(
    simulation: Simulation,
    objective: Objective,
    choices: Choices,
    effort: Effort,
    tell: Tell,
    graph: str = "given",
) -> Plan:
    """Plan in the setting of a simulation; `sdfeel plan` calls this too."""
    if graph not in GRAPHS:
        raise InputError("graph", graph, closest(graph, GRAPHS))

    def plan_on(simulation: Simulation) -> Plan:
        if graph == "any":
            tell(f"on {simulation.network}")
        laboratory = TrainingLaboratory(simulation, on_accuracy=objective.accuracy, tell=tell)
        return recommend(
            laboratory.place, laboratory, objective, choices=choices, effort=effort, tell=tell
        )

    return planned_on_any(simulation, plan_on) if graph == "any" else plan_on(simulation)


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
