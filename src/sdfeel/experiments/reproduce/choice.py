"""The planner's choice as a curve: made once, kept beside the runs, the same when resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from sdfeel.algorithm.methods.codecs import WAYS
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS
from sdfeel.data import fetch
from sdfeel.experiments.config import RunConfig, Strict
from sdfeel.experiments.reproduce.spec import Planned, Planning
from sdfeel.experiments.run import simulation_of
from sdfeel.files import FileLock, write_report
from sdfeel.planner.grid import PLANNED_OPTIMIZERS, PLANNED_RATES, Choices, choices_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend
from sdfeel.simulation.settings import Settings
from sdfeel.tables import to_table


class Choice(Strict):
    """What the planner recommends, and what it cost to find out.

    codecs         by way, of what it chose; those that are not named are as the figure has them
    correction     likewise: none, or its name
    optimizer, lr  likewise: the optimizer as a file has it, and its rate
    of             candidates that it ranked
    trained        iterations of all its runs together
    """

    tau1: int
    tau2: int
    alpha: int
    averager: str
    codecs: dict[str, str] = Field(default_factory=dict)
    correction: str | None = None
    optimizer: dict[str, Any] | None = None
    lr: float | None = None
    budget: float
    loss: float
    bottleneck: str
    of: int
    trained: int
    doubts: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """Return the choice as part of a run's config."""
        schedule = {"tau1": self.tau1, "tau2": self.tau2, "alpha": self.alpha}
        settings: dict[str, Any] = {"schedule": schedule, "averager": self.averager}
        if self.codecs:
            settings["codecs"] = dict(self.codecs)
        if self.correction is not None:
            settings["correction"] = {"name": self.correction}
        if self.optimizer is not None:
            settings |= {"optimizer": dict(self.optimizer), "lr": self.lr}
        return settings

    def words(self) -> str:
        """Describe the choice for the page: a sentence, and one for each doubt."""
        exchanges = f", alpha = {self.alpha}" if self.averager != "all-reduce" else ""
        also = [f"{name} {way}" for way, name in self.codecs.items()]
        also += [] if self.correction is None else [f"correction {self.correction}"]
        if self.optimizer is not None:
            also.append(f"the optimizer {self.optimizer['name']} at a rate of {self.lr:g}")
        methods = f" with {', '.join(also)}," if also else ""
        sentence = (
            f"for {self.budget:g} s the planner chose tau1 = {self.tau1}, tau2 = {self.tau2}"
            f"{exchanges} and {self.averager}{methods} out of {self.of} candidates, from runs of "
            f"{self.trained:,} iterations in all on seed 0; a round's longest part is its "
            f"{self.bottleneck}."
        )
        return " ".join([sentence, *(f"{doubt[0].upper()}{doubt[1:]}." for doubt in self.doubts)])


Choose = Callable[[RunConfig, float, Planning, Sequence[Planned]], Choice]


def choose(
    config: RunConfig,
    budget: float,
    effort: Planning,
    planned: Sequence[Planned] = ("schedule",),
    *,
    tell: Callable[[str], None] = lambda _: None,
    laboratories: dict[str, TrainingLaboratory] | None = None,
) -> Choice:
    """Ask the planner for the least training loss within `budget` simulated seconds.

    planned       what it may choose; the rest is as the config has it
    laboratories  of earlier choices: what they trained is not trained again
    """
    fetch(config.data.name)
    known = {} if laboratories is None else laboratories
    key = json.dumps(_without_title(config), sort_keys=True)
    if key not in known:
        known[key] = TrainingLaboratory(simulation_of(config))
    laboratory = known[key]
    plan = recommend(
        laboratory.place,
        laboratory,
        Objective(budget=budget),
        choices=_choices(laboratory.place.settings, planned),
        effort=Effort(effort.pilot, effort.racers, effort.iterations, effort.heats),
        tell=tell,
    )
    row, evidence = plan.choice, plan.report["evidence"]
    has_optimizer = "optimizer" in planned
    return Choice(
        tau1=row.tau1,
        tau2=row.tau2,
        alpha=row.alpha,
        averager=row.averager.name,
        codecs={way: row.names[f"codecs.{way}"] for way in WAYS} if "codecs" in planned else {},
        correction=row.names["correction"] if "correction" in planned else None,
        optimizer=to_table(row.optimizer, OPTIMIZERS) if has_optimizer else None,
        lr=row.eta if has_optimizer else None,
        budget=budget,
        loss=plan.loss,
        bottleneck=row.price.bottleneck,
        of=len(plan.ranking),
        trained=evidence["iterations_spent"],
        doubts=tuple(evidence["thin"]),
    )


def _choices(settings: Settings, planned: Sequence[Planned]) -> Choices:
    """Return what the planner chooses from: the usual where it may, else what the run has."""
    choose: dict[str, Any] = {"pace": "synchronous"}
    if "codecs" not in planned:
        choose |= {f"codecs.{way}": codec for way, codec in settings.codecs.items()}
    if "correction" not in planned:
        choose["correction"] = settings.correction
    if "optimizer" in planned:
        choose |= {"optimizer": PLANNED_OPTIMIZERS, "lr": PLANNED_RATES}
    return choices_of(choose)


def _without_title(config: RunConfig) -> dict[str, Any]:
    return {key: value for key, value in config.table().items() if key != "title"}


def kept(folder: Path, make: Choose) -> Choose:
    """`make`, whose answers are kept in `folder`: a second call finds what the first one chose.

    One process at a time asks; another that asks the same meanwhile waits for the answer.
    """

    def ask(
        config: RunConfig, budget: float, effort: Planning, planned: Sequence[Planned]
    ) -> Choice:
        question = [_without_title(config), budget, effort.model_dump(), sorted(planned)]
        digest = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:10]
        path = folder / f"choice-{digest}.json"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            try:
                return Choice.model_validate_json(path.read_bytes())
            except (FileNotFoundError, ValidationError):
                choice = make(config, budget, effort, planned)
            write_report(path, choice.model_dump_json(indent=2).encode() + b"\n")
        return choice

    return ask
