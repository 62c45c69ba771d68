"""`sdfeel.plan`: the planner for one's own model, data and network, in one call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import nn

from sdfeel.algorithm.codecs import WAYS
from sdfeel.algorithm.schedule import Schedule
from sdfeel.api import document
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.candidates import Candidate, candidates
from sdfeel.planner.choices import choices_of, effort_of, objective_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.paces import Paced, PacePlan, beside_rounds, devices_differ
from sdfeel.planner.planner import Effort, Recommendation
from sdfeel.planner.race import Objective
from sdfeel.planner.reasons import of_choice, of_evidence
from sdfeel.planner.report import other_topologies, plan_dict, rows
from sdfeel.planner.saved import save_plan
from sdfeel.planner.tuning import recommend_among
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.problem import Loss
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plan", "plan", "planned"]

logger = logging.getLogger("sdfeel")

# Settings of a run that have no place in a plan, and why.
CHOSEN = ("schedule", "averager")
UNUSED = {
    "steps": "pilot= and race_iterations= bound it",
    "until": "budget= is the time there is",
    "flower": "an app trains by itself, and the planner needs gradients",
    "run_config": "it is an app's",
    "train_config": "it is an app's",
    "evaluate_every": "it looks as often as it needs",
    "train_samples": "it takes as many as it needs",
    "evaluate_servers": "the mean alone is looked at",
    "checkpoint_seconds": "nothing is kept on the way",
}


@dataclass(frozen=True, eq=False)
class Plan:
    """What `sdfeel.plan` found.

    settings        the choice as arguments of `sdfeel.train`: `train(..., **plan.settings)`
    reasons         why, in lines; `print(plan)` shows them
    seconds, loss   simulated seconds to the target (or the budget), and the loss reached there
    table           the best by prediction as a pandas DataFrame, with what the races measured
    recommendation  all the evidence on rounds
    paces           other paces beside them, where devices differ: settings, and the seconds to a
                    target, are of the best of both. A loss within a budget is that of rounds
    """

    recommendation: Recommendation
    simulation: Simulation = field(repr=False)
    topologies: Mapping[str, float] = field(repr=False)
    paces: PacePlan | None = field(default=None, repr=False)

    @property
    def choice(self) -> Candidate:
        return self.recommendation.choice

    @property
    def _paced(self) -> Paced | None:
        return None if self.paces is None else self.paces.choice

    @property
    def settings(self) -> dict[str, Any]:
        one, found = self.choice, self.recommendation
        stepping: dict[str, Any] = {}
        if found.option is not None and found.trials:  # else it was not to be chosen
            stepping = {"local": found.option.local, "lr": found.option.lr}
        if self._paced is not None:
            paced = self._paced.settings | {"averager": self._paced.candidate.averager.name}
            return stepping | paced
        return stepping | {
            "schedule": Schedule(one.tau1, one.tau2, one.alpha),
            "averager": one.averager.name,
            "codecs": one.methods.codecs,
            "correction": one.methods.correction,
        }

    @property
    def seconds(self) -> float:
        found, paced = self.recommendation, self._paced
        if paced is None or found.objective.target is None:
            return found.seconds
        return float(paced.measured or 0.0)

    @property
    def loss(self) -> float:
        return self.recommendation.loss

    @cached_property
    def on_paces(self) -> list[str]:
        """What was tried beside rounds, in lines."""
        return [] if self.paces is None else self.paces.lines(self.recommendation.objective)

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        found = self.recommendation
        return (*of_choice(found), *self.on_paces, *of_evidence(found, self.topologies))

    @cached_property
    def table(self) -> pd.DataFrame:
        return pd.DataFrame(rows(self.recommendation))

    def predicted(self) -> pd.DataFrame:
        """The curve that the choice is predicted to have: `seconds` and `loss` (1 - accuracy for a
        target accuracy). It goes as far as the pilot did, or the budget.
        """
        found, one = self.recommendation, self.choice
        budget = found.objective.budget
        losses, needed = found.predictor.needed([one], beyond=found.objective.target is None)
        seconds = needed[0] * one.cost.per_iteration
        kept = seconds <= (budget or float("inf")) * (1 + 1e-9)
        kept &= seconds < float("inf")
        return pd.DataFrame({"seconds": seconds[kept], "loss": losses[kept]})

    def plot(self, path: str | Path | None = None) -> Figure:
        """Price against pace of every candidate, and loss over time of the best."""
        from sdfeel.planner.figure import frontier_figure  # takes a while
        from sdfeel.reports.figures import save_figure

        figure = frontier_figure(self.recommendation)
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def save(self, folder: str | Path) -> Path:
        """Write plan.json into a folder: `sdfeel.planner.saved.read_plan` gives it back."""
        ranking = rows(self.recommendation)
        return save_plan(
            folder, self.recommendation, self.simulation, reasons=self.reasons, ranking=ranking
        )

    def to_dict(self) -> dict[str, Any]:
        """What `sdfeel plan --json` prints."""
        paces = {} if self.paces is None else {"pace": self.paces.table()}
        return plan_dict(self.recommendation, dict(self.topologies)) | paces

    def __str__(self) -> str:
        return "\n".join(self.reasons)

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(escape(line) for line in self.reasons)
        return f"<p>{lines}</p>{self.table.to_html(index=False, na_rep='')}"


def plan(
    model: nn.Module,
    client_datasets: Any,
    *,
    network: Network,
    target_loss: float | None = None,
    target_accuracy: float | None = None,
    budget: float | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
    partition: str | Sequence[Any] | None = None,
    pilot: int = 2000,
    racers: int = 6,
    race_iterations: int = 30_000,
    tell: Callable[[str], None] = logger.info,
    **settings: Any,
) -> Plan:
    """Recommend a schedule, an averager, codecs and a correction, for the least simulated time;
    where asked to, the local rule and its rate.

    One pilot and a few short probes are trained, everything is predicted, and the best few race.
    Where devices differ, other paces are tried against the winner.

    model            any nn.Module; it is not changed
    client_datasets  as for `sdfeel.train`
    network          clusters and graph
    target_loss      the training loss to reach in the least time
    target_accuracy  the accuracy to reach on `test`, in place of a loss
    budget           simulated seconds: the least loss within them, or the target at all
    choose           what to choose from, where it is not the usual: {"tau1": (1, 5, 20)}; also
                     tau2, alpha, averager, codecs.up, codecs.down, codecs.between, correction, and
                     local with lr: {"local": ("sgd", "momentum"), "lr": (0.01, 0.1)}. One value
                     fixes it
    loss, metrics    as for `sdfeel.train`
    test             a dataset or (inputs, targets) that no client holds
    partition        of one dataset for all
    pilot            at most so many iterations of the pilot
    racers           candidates in the first heat
    race_iterations  of all races of a budget together; the rest of it is predicted
    tell             called with a line now and then; by default it is logged

    Settings of `sdfeel.train` that are not chosen here stay as they are given; a codec or a
    correction that is given is fixed.
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
    return planned(simulation, objective, choices, effort, tell)


def planned(
    simulation: Simulation,
    objective: Objective,
    choices: Mapping[str, tuple[Any, ...] | None],
    effort: Effort,
    tell: Callable[[str], None] = logger.info,
) -> Plan:
    """The plan in the setting of a simulation; `sdfeel plan` calls this too."""
    laboratory = TrainingLaboratory(simulation, on_accuracy=objective.accuracy)
    simulation.warn_of_clock()
    codecs = {way: own for way in WAYS if (own := choices[f"codecs.{way}"]) is not None}
    corrections = choices["correction"]
    averagers, alpha = choices["averager"] or (), choices["alpha"] or ()

    def grid(place: TrainingLaboratory) -> list[Candidate]:
        return candidates(
            place.network,
            place.latencies,
            tau1=choices["tau1"] or (),
            tau2=choices["tau2"] or (),
            alpha=alpha,
            averagers=averagers,
            methods=place.methods(codecs, corrections),
            assemble=place.assembling(),
        )

    found = recommend_among(
        laboratory.network,
        laboratory.latencies,
        laboratory.options(choices["local"], choices["lr"], grid=grid),
        objective,
        effort=effort,
        tell=tell,
    )
    if found.option is not None:
        laboratory = laboratory.stepping(found.option.local, found.option.lr)
    other = other_topologies(found, laboratory.latencies, averagers, alpha, laboratory.assembling)
    differ = devices_differ(laboratory.latencies)
    paces = beside_rounds(found, laboratory, tell) if differ else None
    return Plan(found, laboratory.simulation, other, paces)


document(plan, left_out=[*CHOSEN, *UNUSED])
