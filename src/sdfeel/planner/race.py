"""Racing runs: candidates train side by side in simulated time, and losers are dropped early.

Successive halving (Jamieson and Talwalkar, AISTATS 2016) with two changes: the budget of a rung is
simulated time, which is what candidates compete for; and who stays is decided by where each is
heading, its own curve continued by the calibrated prediction, because a schedule with long periods
leads at first and then stalls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sdfeel.algorithm.codecs import Codec
from sdfeel.errors import InputError
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.pilot_path import LossCurve, PathPoint
from sdfeel.planner.prediction import Predictor, iterations_to, reached

__all__ = ["Entrant", "Laboratory", "Objective", "Run", "outlook", "race"]

# Rungs as parts of the time at which the best is expected to finish.
RUNGS = (0.4, 0.75, 1.0, 1.3, 1.7, 2.5, 4.0, 6.0)
# Nobody is dropped who is expected within this factor of the best.
CLOSE = 1.1


class Run(Protocol):
    """One candidate in training."""

    @property
    def curve(self) -> LossCurve: ...

    def advance(self, iterations: int) -> None:
        """Train on until `iterations` in all are done."""

    def measure(self, sent: Mapping[tuple[str, str], Codec]) -> PathPoint:
        """The split of kappa at the present mean model, and what each of these codecs owes."""


class Laboratory(Protocol):
    """Where runs are carried out; all its runs share their start and their mini-batches."""

    lr: float

    def start(self, candidate: Candidate) -> Run: ...


@dataclass(frozen=True)
class Objective:
    """What to plan for: a target loss in the least time, or the least loss within a budget.

    With both, the target must be reached within the budget (simulated seconds). A target accuracy
    is a target for 1 - accuracy: set `accuracy` and give laboratories that report it.
    """

    target: float | None = None
    budget: float | None = None
    accuracy: bool = False

    def __post_init__(self) -> None:
        if self.target is None and self.budget is None:
            raise InputError("target", None, "a target loss or accuracy, or a budget in seconds")
        if self.target is not None and not (np.isfinite(self.target) and self.target > 0):
            raise InputError("target", self.target, "a finite number above 0")
        if self.budget is not None and not (np.isfinite(self.budget) and self.budget > 0):
            raise InputError("budget", self.budget, "simulated seconds, above 0")

    def shown(self, loss: float) -> str:
        """A loss in the words of the objective."""
        return f"accuracy {1 - loss:.4g}" if self.accuracy else f"loss {loss:.4g}"


@dataclass
class Entrant:
    """How a candidate's run ended; its score is seconds to the target, or the budget's loss."""

    candidate: Candidate
    run: Run
    dropped_at: float | None = None

    @property
    def iterations(self) -> int:
        return int(self.run.curve.iterations[-1])

    def score(self, objective: Objective) -> float:
        if objective.target is not None:
            return self.run.curve.seconds_to(objective.target)
        if self.run.curve.diverged:
            return float("inf")
        return self.run.curve.loss_at(objective.budget or np.inf)


def race(
    entrants: Sequence[Entrant],
    predictor: Predictor,
    objective: Objective,
    deadline: float,
    iterations: float = np.inf,
) -> None:
    """Advance the entrants rung by rung until one has won; nobody runs beyond `deadline`.

    The deadline is the time at which a target was reached already: who is later has lost. A race
    within a budget is cut where it would take more than `iterations` in all: see `outlook`.
    """
    alive = list(entrants)
    chosen = [one.candidate for one in alive]
    expected = _expected(predictor, chosen, objective)
    if objective.target is None:
        deadline = min(deadline, iterations / sum(1 / one.cost.per_iteration for one in chosen))
    for part in RUNGS:
        at = min(part * min(expected, deadline), deadline)
        for one in alive:
            one.run.advance(max(1, one.candidate.cost.iterations_within(at)))
            if one.run.curve.diverged:
                one.dropped_at = at
        alive = [one for one in alive if one.dropped_at is None] or alive
        if at >= deadline or any(_finished(one, objective) for one in alive):
            return
        alive = _survivors(alive, predictor, objective, at)


def outlook(one: Entrant, predictor: Predictor, objective: Objective) -> float:
    """The score; where a race was cut before its budget, the loss that the run is heading for."""
    cut = objective.target is None and one.dropped_at is None and not _complete(one, objective)
    return _heading(one, predictor, objective) if cut else one.score(objective)


def _complete(one: Entrant, objective: Objective) -> bool:
    """Whether the run lasted for the whole budget: its next evaluation would fall behind it."""
    left = one.candidate.cost.iterations_within(objective.budget or 0.0) - one.iterations
    last = int(np.diff(one.run.curve.iterations[-2:]).sum())
    return left < max(one.candidate.tau1, last)


def _finished(one: Entrant, objective: Objective) -> bool:
    return objective.target is not None and np.isfinite(one.score(objective))


def _expected(predictor: Predictor, chosen: Sequence[Candidate], objective: Objective) -> float:
    if objective.target is None:
        return float(objective.budget or 0.0)
    return float(predictor.seconds(chosen, objective.target).min())


def _survivors(
    alive: list[Entrant], predictor: Predictor, objective: Objective, at: float
) -> list[Entrant]:
    heading = np.array([_heading(one, predictor, objective) for one in alive])
    order = np.argsort(heading, kind="stable")
    keep = max(2, (len(alive) + 1) // 2)
    limit = heading[order[0]] * CLOSE if np.isfinite(heading[order[0]]) else np.inf
    stay = {int(row) for row in order[:keep]} | set(np.flatnonzero(heading <= limit).tolist())
    for row, one in enumerate(alive):
        if row not in stay:
            one.dropped_at = at
    return [one for row, one in enumerate(alive) if row in stay]


def _heading(one: Entrant, predictor: Predictor, objective: Objective) -> float:
    """Seconds to the target, or loss at the budget, if the run goes on as predicted.

    A run that took r times as long as predicted to where it is takes r times as long from here.
    """
    if one.run.curve.diverged:
        return float("inf")
    losses, needed = predictor.needed([one.candidate], beyond=objective.target is None)
    own, levels = reached(needed[0], losses)
    here = float(np.interp(-one.run.curve.best, -levels, own))
    ratio = max(one.iterations, 1) / max(here, 1.0)
    if objective.target is not None:
        ahead = iterations_to(objective.target, needed[0], losses) - here
        if not np.isfinite(ahead):
            return float("inf")
        return float(one.candidate.cost.seconds(int(one.iterations + ratio * max(ahead, 0.0))))
    final = one.candidate.cost.iterations_within(objective.budget or 0.0)
    ahead = float(np.interp(here + (final - one.iterations) / ratio, own, levels))
    return min(ahead, one.run.curve.best)
