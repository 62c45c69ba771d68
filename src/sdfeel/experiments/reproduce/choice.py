"""The planner's choice as a curve: made once, kept beside the runs, the same when resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sdfeel.data.fetch import fetch
from sdfeel.experiments.config import RunConfig
from sdfeel.experiments.reproduce.spec import Planning
from sdfeel.experiments.run import simulation_of
from sdfeel.files import write_report
from sdfeel.planner.candidates import candidates
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.planner import Effort, recommend
from sdfeel.planner.race import Objective

__all__ = ["Choice", "Choose", "choose", "kept"]


class Choice(BaseModel):
    """What the planner recommends, and what it cost to find out.

    of       candidates that it ranked
    trained  iterations of all its runs together
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    tau1: int
    tau2: int
    alpha: int
    averager: str
    budget: float
    loss: float
    bottleneck: str
    of: int
    trained: int
    doubts: tuple[str, ...]

    def settings(self) -> dict[str, Any]:
        """As part of a run's config."""
        schedule = {"tau1": self.tau1, "tau2": self.tau2, "alpha": self.alpha}
        return {"schedule": schedule, "averager": self.averager}

    def words(self) -> str:
        """One sentence for the page, and one for each doubt."""
        exchanges = f", alpha = {self.alpha}" if self.averager != "all-reduce" else ""
        said = (
            f"For {self.budget:g} s the planner chose tau1 = {self.tau1}, tau2 = {self.tau2}"
            f"{exchanges} and {self.averager} out of {self.of} candidates, from runs of "
            f"{self.trained:,} iterations in all on seed 0; a round's longest part is its "
            f"{self.bottleneck}."
        )
        return " ".join([said, *(f"{doubt[0].upper()}{doubt[1:]}." for doubt in self.doubts)])


Choose = Callable[[RunConfig, float, Planning], Choice]


def choose(
    config: RunConfig, budget: float, effort: Planning, tell: Callable[[str], None] = lambda _: None
) -> Choice:
    """Ask the planner for the least training loss within `budget` simulated seconds."""
    fetch(config.data.name)
    laboratory = TrainingLaboratory(simulation_of(config))
    found = recommend(
        laboratory.network,
        laboratory.latencies,
        laboratory,
        Objective(budget=budget),
        grid=candidates(
            laboratory.network,
            laboratory.latencies,
            methods=[laboratory.own],
            assemble=laboratory.assembling(),
        ),
        effort=Effort(
            pilot=effort.pilot,
            first=effort.racers,
            later=max(1, effort.racers // 2),
            heats=effort.heats,
            iterations=effort.iterations,
        ),
        tell=tell,
    )
    return Choice(
        tau1=found.choice.tau1,
        tau2=found.choice.tau2,
        alpha=found.choice.alpha,
        averager=found.choice.averager.name,
        budget=budget,
        loss=found.loss,
        bottleneck=found.choice.cost.bottleneck,
        of=len(found.ranking),
        trained=found.iterations_spent,
        doubts=found.doubts,
    )


def _without_title(config: RunConfig) -> dict[str, Any]:
    return {key: value for key, value in config.table().items() if key != "title"}


def kept(folder: Path, make: Choose) -> Choose:
    """`make`, whose answers are kept in `folder`: a second call finds what the first one chose."""

    def ask(config: RunConfig, budget: float, effort: Planning) -> Choice:
        asked = [_without_title(config), budget, effort.model_dump()]
        digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:10]
        path = folder / f"choice-{digest}.json"
        try:
            return Choice.model_validate_json(path.read_bytes())
        except (FileNotFoundError, ValidationError):
            choice = make(config, budget, effort)
        write_report(path, choice.model_dump_json(indent=2).encode() + b"\n")
        return choice

    return ask
