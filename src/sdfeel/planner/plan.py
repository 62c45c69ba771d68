"""`sdfeel.plan`: the planner for one's own model, data and network, in one call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd
from torch import nn

from sdfeel.engines.problem import Loss
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import CHOICES, Choices, choices_of, steppings
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.pilot import NotReachableError
from sdfeel.planner.prediction import Predictor
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Laboratory, Objective, Tell, scale_of, simplest
from sdfeel.planner.report import headline, reasons_of, report_of
from sdfeel.planner.search import Effort, Search, best_after_trial
from sdfeel.simulation.arguments import RunSettings
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plan", "effort_of", "objective_of", "plan", "planned", "recommend"]

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


@dataclass(frozen=True, eq=False)
class Plan:
    """What `sdfeel.plan` recommends, and why; also as `sdfeel.planner.saved.read_plan` reads it.

    objective  what was planned for
    place      network, clock, size of the model and the settings that stay
    predictor  the fitted prediction
    choice     the recommended candidate: tau1, tau2, alpha, averager, codecs, ..., what it costs,
               what is predicted and what was measured
    best       the best in rounds of all servers; the choice, unless another pace is better
    ranking    all candidates by prediction, the best first; of a plan that was read, the raced
    probes     candidates of which short runs were made to fit the prediction
    reasons    why, in lines; `print(plan)` shows them
    report     all of it in numbers, as `sdfeel plan --json` prints them
    """

    objective: Objective
    place: Place
    predictor: Predictor
    choice: Candidate
    best: Candidate
    ranking: tuple[Candidate, ...]
    reasons: tuple[str, ...]
    report: Mapping[str, Any]
    probes: tuple[Candidate, ...] = ()

    @property
    def settings(self) -> dict[str, Any]:
        """The choice as arguments of `sdfeel.train`: `train(..., **plan.settings)`.

        Without an optimizer, rate or pace where there was none to choose.
        """
        settings, stay = self.choice.settings, self.place.settings
        has_trials = bool(self.report.get("trials"))
        for name in ("optimizer", "lr", "pace"):
            if settings[name] == getattr(stay, name) and (name == "pace" or not has_trials):
                del settings[name]
        return settings

    @property
    def seconds(self) -> float:
        """Simulated seconds to the target, as measured; or the budget."""
        return headline(self.choice, self.objective)[0]

    @property
    def loss(self) -> float:
        """The loss reached there; 1 - accuracy for an accuracy."""
        return headline(self.choice, self.objective)[1]

    @property
    def level(self) -> float:
        """The target, or what the budget ends with; not below what the pilot reached."""
        return max(self.objective.target or self.loss, self.predictor.path.curve.best)

    @property
    def raced(self) -> list[Candidate]:
        return [row for row in self.ranking if row.was_trained]

    @property
    def table(self) -> pd.DataFrame:
        """The best by prediction, with what the races measured."""
        return pd.DataFrame(self.report.get("ranking", []))

    def predicted(self) -> pd.DataFrame:
        """The curve that the choice is predicted to have: `seconds` and `loss` (1 - accuracy for a
        target accuracy). It goes through what was measured, and as far as the pilot or the budget.
        """
        curve, (seconds, reached) = (
            self.expected(self.choice),
            headline(self.choice, self.objective),
        )
        loss = self.objective.target or reached
        before = (curve.seconds < seconds) & (curve.losses > loss)
        after = (curve.seconds > seconds) & (curve.losses < loss)
        after &= curve.seconds <= self.objective.limit
        points = {"seconds": (curve.seconds, seconds), "loss": (curve.losses, loss)}
        return pd.DataFrame(
            {name: [*every[before], at, *every[after]] for name, (every, at) in points.items()}
        )

    def expected(self, row: Candidate) -> LossCurve:
        """The predicted curve of any candidate, relative to what was measured of the choice."""
        (curve,) = self.predictor.curves([row], beyond=self.objective.target is None)
        measured = self.choice if row.pace == self.choice.pace else self.best
        return replace(row, predicted=curve).scaled(scale_of(measured, self.objective))

    def plot(self, path: str | Path | None = None) -> Figure:
        """Price against pace of every candidate, and loss over time of the best."""
        from sdfeel.planner.figure import frontier_figure  # takes a while
        from sdfeel.reports.figures import save_figure

        figure = frontier_figure(self)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def save(self, folder: str | Path) -> Path:
        """Write plan.json into a folder: `sdfeel.planner.saved.read_plan` gives it back."""
        from sdfeel.planner.saved import save_plan

        return save_plan(self, folder)

    def to_dict(self) -> dict[str, Any]:
        """What `sdfeel plan --json` prints."""
        return dict(self.report)

    def __str__(self) -> str:
        return "\n".join(self.reasons)

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(escape(line) for line in self.reasons)
        return f"<p>{lines}</p>{self.table.to_html(index=False, na_rep='')}"


def recommend(
    place: Place,
    laboratory: Laboratory,
    objective: Objective,
    *,
    choices: Choices = CHOICES,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Tell = lambda _: None,
) -> Plan:
    """Search for the best candidate.

    Args:
        place: where candidates would train.
        laboratory: where they do.
        objective: what to plan for.
        choices: from what to choose.
        effort: how much it may cost.
        tell: called with a line whenever something else is tried.

    Raises:
        InputError: an algorithm refuses every candidate.
        NotReachableError: no candidate reaches the target.
    """
    searches = [Search(each, laboratory, objective, choices) for each in steppings(place, choices)]
    best = best_after_trial(searches, effort, tell)
    share = replace(effort, iterations=max(1, effort.iterations // len(best)))
    done: list[Search] = []
    refusals: list[NotReachableError] = []
    for search in best:
        tell(f"{len(search.grid)} candidates with {search.pilot.stepping}")
        try:
            search.carry_out(share, tell)
            done.append(search)
        except NotReachableError as refusal:
            refusals.append(refusal)
    if not done:
        raise refusals[0]

    def score(row: Candidate) -> float:
        return headline(row, objective)[0 if objective.target is not None else 1]

    choice = simplest([search.choice for search in done], score, objective.highest)
    search = next(search for search in done if search.choice is choice)
    tell("what other topologies would need")
    report = report_of(search, searches)
    return Plan(
        objective=objective,
        place=place,
        predictor=search.predictor,
        choice=choice,
        best=search.best,
        ranking=tuple(search.ranking),
        reasons=reasons_of(search, report),
        report=report,
        probes=tuple(search.probes),
    )


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
        ...     torch.nn.Linear(4, 2).double(), data, budget=0.1, pilot=20, racers=1, seed=1,
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
    objective = objective_of(target_loss, target_accuracy, budget)
    choices = choices_of(choose or {})
    effort = effort_of(pilot, racers, race_iterations)
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
    return planned(simulation, objective, choices, effort, tell or _print)


def planned(
    simulation: Simulation, objective: Objective, choices: Choices, effort: Effort, tell: Tell
) -> Plan:
    """Plan in the setting of a simulation; `sdfeel plan` calls this too."""
    laboratory = TrainingLaboratory(simulation, on_accuracy=objective.accuracy)
    return recommend(
        laboratory.place, laboratory, objective, choices=choices, effort=effort, tell=tell
    )


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def objective_of(loss: float | None, accuracy: float | None, budget: float | None) -> Objective:
    """Check what to plan for."""
    if loss is not None and accuracy is not None:
        raise InputError("target-accuracy", accuracy, "one target: a loss or an accuracy")
    for name, value in {"target": loss, "target-accuracy": accuracy, "budget": budget}.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not is_number:
            raise InputError(name, value, "a number")
    if accuracy is None:
        return Objective(target=loss, budget=budget)
    if not 0 < accuracy < 1:
        raise InputError("target-accuracy", accuracy, "a share between 0 and 1, such as 0.9")
    return Objective(target=1 - accuracy, budget=budget, accuracy=True)


def effort_of(pilot: int, racers: int, race_iterations: int) -> Effort:
    """Check how much a plan may cost."""
    least = {"pilot": (pilot, 10), "racers": (racers, 1), "race-iterations": (race_iterations, 1)}
    for name, (value, lowest) in least.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise InputError(name, value, f"a whole number, at least {lowest}")
    return Effort(pilot, racers, max(1, racers // 2), 3, race_iterations)
