"""A plan: what is recommended, and the evidence for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import CHOICES, Choices, candidates
from sdfeel.planner.pilot import pilot_and_probes
from sdfeel.planner.prediction import Predictor
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Objective, scale_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Plan"]


@dataclass(eq=False, repr=False)
class Plan:
    """What `sdfeel.plan` recommends, and why; also as `sdfeel.planner.saved.read_plan` reads it.

    objective  what was planned for
    place      network, clock, size of the model and the settings that stay
    choices    from what was chosen
    grid       candidates in rounds; others: those of other paces
    pilot      the run that never deviates; probes: short runs at the corners of the grid
    predictor  the prediction, fitted to all runs
    best       of those in rounds that raced; the choice, unless another pace is better
    choice     the recommended candidate: tau1, tau2, alpha, averager, codecs, ..., what it costs,
               what is predicted and what was measured
    rungs      of a trial against other optimizers and rates: simulated seconds and the loss then
    report     all of it in numbers, as `sdfeel plan --json` prints them
    reasons    why, in lines; `print(plan)` shows them

    >>> plan = sdfeel.plan(
    ...     model, data, network=network, budget=0.002, pilot=20, racers=1,
    ...     choose={"tau1": (1, 5), "tau2": 1}, tell=lambda line: None,
    ... )
    >>> sorted(plan.settings)[:2]
    ['averager', 'codecs']
    """

    objective: Objective
    place: Place
    choices: Choices = field(default_factory=lambda: CHOICES)
    grid: list[Candidate] = field(default_factory=list)
    others: list[Candidate] = field(default_factory=list)
    pilot: Candidate = field(init=False)
    probes: list[Candidate] = field(default_factory=list)
    predictor: Predictor = field(init=False)
    best: Candidate = field(init=False)
    choice: Candidate = field(init=False)
    rungs: list[tuple[float, float]] = field(default_factory=list)
    report: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @classmethod
    def begin(cls, place: Place, objective: Objective, choices: Choices) -> Plan:
        """A plan with its candidates, of which nothing is known."""
        plan = cls(objective, place, choices, candidates(place, choices))
        plan.pilot, *plan.probes = pilot_and_probes(place, plan.grid)
        return plan

    def predict(self, rows: Sequence[Candidate]) -> None:
        """Set what is predicted for candidates."""
        curves = self.predictor.curves(rows, beyond=self.objective.target is None)
        for row, curve in zip(rows, curves, strict=True):
            row.predicted = curve

    @property
    def ranking(self) -> list[Candidate]:
        """All candidates by prediction, the best first; of a plan that was read, the raced."""
        return sorted([*self.grid, *self.others], key=self.objective.predicted)

    @property
    def raced(self) -> list[Candidate]:
        return [row for row in self.ranking if row.was_trained]

    @property
    def in_rounds(self) -> list[Candidate]:
        """Candidates in rounds that raced."""
        return [row for row in self.grid if row.was_trained]

    @property
    def iterations(self) -> int:
        """Iterations of all runs that were made for it."""
        rows = [self.pilot, *self.probes, *self.grid, *self.others]
        return sum(int(row.curve.iterations[-1]) for row in rows if row.was_trained)

    @property
    def until(self) -> float:
        """Simulated seconds at which paces are compared: as far as the best in rounds went."""
        if self.objective.target is not None:
            return self.objective.measured(self.best)
        return min(self.objective.limit, float(self.best.curve.seconds[-1]))

    def measured(self, row: Candidate) -> float:
        """The score by which paces are compared."""
        return self.objective.measured(row, self.until)

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
        return self.objective.headline(self.choice)[0]

    @property
    def loss(self) -> float:
        """The loss reached there; 1 - accuracy for an accuracy."""
        return self.objective.headline(self.choice)[1]

    @property
    def level(self) -> float:
        """The target, or what the budget ends with; not below what the pilot reached."""
        return max(self.objective.target or self.loss, self.predictor.path.curve.best)

    @property
    def table(self) -> pd.DataFrame:
        """The best by prediction, with what the races measured."""
        return pd.DataFrame(self.report.get("ranking", []))

    def predicted(self) -> pd.DataFrame:
        """The curve that the choice is predicted to have: `seconds` and `loss` (1 - accuracy for a
        target accuracy). It goes through what was measured, and as far as the pilot or the budget.
        """
        curve, seconds = self.expected(self.choice), self.seconds
        loss = self.objective.target or self.loss
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

    def __repr__(self) -> str:
        return "\n".join(self.reasons)

    def _repr_html_(self) -> str:
        from html import escape

        lines = "<br>".join(escape(line) for line in self.reasons)
        return f"<p>{lines}</p>{self.table.to_html(index=False, na_rep='')}"
