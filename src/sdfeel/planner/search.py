"""The search for the best candidate with one optimizer and rate; and for these.

1. A pilot that averages everything at every iteration: how the loss falls at best, with the split
   of kappa measured along the way, and what codecs make of its gradients.
2. Three short probes at the corners of the grid: how much deviation slows this problem down. One
   more with a correction, if that may be chosen: how much of the drift it leaves.
3. A prediction for every candidate; the stream of its events turns iterations into seconds.
4. Races among the best few, with shared randomness; every curve refines the prediction. A candidate
   that now looks better is raced too, and last a simpler one that looks as good.
5. Where devices differ, a race of other paces against the best. The prediction knows nothing of
   stale models, nor of data that is left out or counts for more. So it only says which candidate of
   each kind of pace is trained, and what was measured decides.

Several optimizers and rates are tried against each other before. Each begins what its search begins
with, the pilot and the plain probes: so one that needs long periods to show what it can do shows
it, and one that cannot bear them does too. It is as good as the best of its runs after the same
simulated time, or at a target first. Rung by rung the time doubles and the worse half goes, as in
races; what diverges has lost. The best is searched, and the second if it is close.

Nothing is trained here: a `Laboratory` is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sdfeel.planner.calibration import calibrate
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import CHOICES, Choices, candidates, paces_beside
from sdfeel.planner.pilot import NotReachableError, pilot_and_probes, run_pilot
from sdfeel.planner.prediction import Predictor
from sdfeel.planner.race import AS_GOOD, Laboratory, Objective, Tell, outlook, race, simplest

__all__ = ["Effort", "Search", "best_after_trial"]

# The first rung of a trial, as a part of the pilot's iterations; and its periods at least.
FIRST = 1 / 8
PERIODS = 3
# The second optimizer and rate is searched too if its loss, or its time, is within this factor.
CLOSE = 1.05


@dataclass(frozen=True)
class Effort:
    """How much a plan may cost: the pilot's iterations, and how many candidates race.

    first, later  candidates of the first race and of the later ones
    races         at most so many
    iterations    of all races together, where the objective is a budget: a long one is raced for a
                  part of its time, and the rest is predicted
    """

    pilot: int = 2000
    first: int = 8
    later: int = 4
    races: int = 4
    iterations: int = 30_000


@dataclass(eq=False)
class Search:
    """Candidates with one optimizer and rate, and what is found out about them.

    grid       candidates in rounds; others: those of other paces
    pilot      the run that never deviates; probes: the corners of the grid
    predictor  the prediction, fitted to all runs
    best       of those in rounds that raced; choice: of all
    rungs      of a trial against other optimizers and rates: simulated seconds and the loss then
    """

    place: Place
    laboratory: Laboratory
    objective: Objective
    choices: Choices = field(default_factory=lambda: CHOICES)
    grid: list[Candidate] = field(init=False)
    others: list[Candidate] = field(init=False, default_factory=list)
    pilot: Candidate = field(init=False)
    probes: list[Candidate] = field(init=False)
    predictor: Predictor = field(init=False)
    best: Candidate = field(init=False)
    choice: Candidate = field(init=False)
    rungs: list[tuple[float, float]] = field(init=False, default_factory=list)
    is_planned: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.grid = candidates(self.place, self.choices)
        self.pilot, *self.probes = pilot_and_probes(self.place, self.grid)

    @property
    def raced(self) -> list[Candidate]:
        """Candidates in rounds that raced."""
        return [row for row in self.grid if row.was_trained]

    @property
    def ranking(self) -> list[Candidate]:
        """All candidates by prediction, the best first."""
        return sorted([*self.grid, *self.others], key=self.objective.predicted)

    @property
    def tried(self) -> list[Candidate]:
        """Candidates of other paces that raced."""
        return [row for row in self.others if row.was_trained]

    @property
    def iterations(self) -> int:
        """Iterations of all runs that were made for it."""
        rows = [self.pilot, *self.probes, *self.raced, *self.tried]
        return sum(int(row.curve.iterations[-1]) for row in rows if row.was_trained)

    def carry_out(self, effort: Effort, tell: Tell = lambda _: None) -> None:
        """Find the choice.

        Raises:
            NotReachableError: nothing reaches the target, or everything diverges.
        """
        self.is_planned = True
        path = run_pilot(self.pilot, self.grid, self.laboratory, self.objective, effort.pilot, tell)
        tell("probes: how much deviation slows this problem down")
        for probe in self.probes:
            iterations = 2 * int(path.curve.iterations[-1] / probe.gain)
            iterations = max(iterations, 3 * probe.tau1)
            tell(f"  {probe}: {iterations} iterations")
            run = self.laboratory.start(probe)
            run.advance(iterations)
            probe.curve = run.curve
        self._predict(calibrate(path, self.probes))
        for number in range(effort.races):
            rows = self._next_racers(effort)
            if not rows:
                break
            tell(f"race {number + 1}: " + "; ".join(str(row) for row in rows))
            share = effort.iterations / effort.races
            race(rows, self.laboratory, self.objective, self._deadline, share, tell)
            self._predict(calibrate(path, [*self.probes, *self.raced]))
        self.best = simplest(self.raced, self._outlook, self.objective.highest)
        self._check_reached()
        self.choice = self._best_of_all_paces(tell)

    def _predict(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self.predict(self.grid)

    def predict(self, rows: Sequence[Candidate]) -> None:
        """Set what is predicted for candidates."""
        curves = self.predictor.curves(rows, beyond=self.objective.target is None)
        for row, curve in zip(rows, curves, strict=True):
            row.predicted = curve

    def _outlook(self, row: Candidate) -> float:
        return outlook(row, self.objective)

    @property
    def _deadline(self) -> float:
        """No candidate needs to run longer than one that is as good as the best, or the budget."""
        is_timed = self.objective.target is not None
        reached = [self.objective.measured(row) for row in self.raced] if is_timed else []
        return min([*(AS_GOOD * seconds for seconds in reached), self.objective.limit])

    def _next_racers(self, effort: Effort) -> list[Candidate]:
        """The best by prediction; later those that may beat the best so far.

        If there are none, the simplest that may be as good, if it is simpler than the best.
        """
        score = self.objective.predicted
        fresh = sorted((row for row in self.grid if not row.was_trained), key=score)
        if not self.raced:
            return _varied(fresh, effort.first)
        least = min(self._outlook(row) for row in self.raced)
        better = [row for row in fresh if score(row) < least]
        if better:
            return better[: effort.later]
        best = simplest(self.raced, self._outlook)
        simpler = [
            row
            for row in fresh
            if score(row) <= least * AS_GOOD and row.complexity < best.complexity
        ]
        return sorted(simpler, key=lambda row: row.complexity)[:1]

    def _check_reached(self) -> None:
        objective, limit = self.objective, self.objective.limit
        if objective.target is None:
            if all(row.curve.diverged for row in self.raced):
                raise NotReachableError(
                    "all runs of the races diverged: try a smaller learning rate"
                )
            return
        seconds = objective.measured(self.best)
        if np.isfinite(seconds) and seconds <= limit:
            return
        loss = min(row.curve.loss_at(limit) for row in self.raced)
        within = f"the budget of {limit:g} s" if np.isfinite(limit) else "the races"
        raise NotReachableError(
            f"{objective.shown(objective.target)} is not reachable within {within}, "
            f"best reached is {objective.shown(loss)}"
        )

    @property
    def until(self) -> float:
        """Simulated seconds at which paces are compared: as far as the best in rounds went."""
        if self.objective.target is not None:
            return self.objective.measured(self.best)
        return min(self.objective.limit, float(self.best.curve.seconds[-1]))

    def measured(self, row: Candidate) -> float:
        """The score by which paces are compared."""
        return self.objective.measured(row, self.until)

    def _best_of_all_paces(self, tell: Tell) -> Candidate:
        """Race the best of each kind of pace by prediction until the best in rounds was done."""
        self.others = paces_beside(self.place, self.choices, self.best)
        if not self.others:
            return self.best
        self.predict(self.others)
        by_kind: dict[str, Candidate] = {}
        for row in sorted(self.others, key=self.objective.predicted):
            by_kind.setdefault(row.kind_of_pace, row)
        for row in by_kind.values():
            tell(f"pace: {row}")
        rows = list(by_kind.values())
        race(rows, self.laboratory, self.objective, self.until, tell=tell, drops=False)
        names = self.choices["pace"]
        in_rounds = [self.best] if names is None or "synchronous" in names else []
        return simplest([*in_rounds, *rows], self.measured)


def _varied(ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """The best; at most half of them with the same methods, or with the same tau1.

    What is known of a method before it was raced is a measurement of the pilot's; one that
    promises too much must not fill the race. Nor must variants of one schedule.
    """
    if len({_kind(row) for row in ranked}) == 1:
        return list(ranked[:count])
    has_several = len({row.tau1 for row in ranked}) > 1
    taken: Counter[object] = Counter()
    first: list[Candidate] = []
    for row in ranked:
        keys = [_kind(row), *([row.tau1] if has_several else [])]
        if len(first) < count and all(taken[key] < max(1, count // 2) for key in keys):
            taken.update(keys)
            first.append(row)
    return first


def _kind(row: Candidate) -> tuple[object, ...]:
    """What clients send and get, and whether they are corrected."""
    names = row.names
    return tuple(names[key] for key in ("codecs.up", "codecs.down", "correction"))


class _Trial:
    """How an optimizer with its rate does beside others."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.rows = [search.pilot, *(row for row in search.probes if row.is_plain)]
        self.runs = [search.laboratory.start(row) for row in self.rows]

    def advance(self, seconds: float) -> None:
        """Train until a simulated second, and note the lowest loss of all runs there."""
        losses = []
        for row, run in zip(self.rows, self.runs, strict=True):
            run.advance(max(row.tau1, row.price.iterations_within(seconds)))
            row.curve = run.curve
            before = row.curve.losses[row.curve.seconds <= seconds * (1 + 1e-9)]
            # The last loss, not the best: a run that has left its best is no better.
            losses.append(np.inf if row.curve.diverged else before[-1])
        self.search.rungs.append((seconds, float(min(losses))))

    @property
    def score(self) -> tuple[bool, float]:
        """Lower is better: those that reached the target by when they did, others by their loss."""
        target = self.search.objective.target
        if target is not None:
            reached = min(row.curve.seconds_to(target) for row in self.rows)
            if np.isfinite(reached):
                return False, reached
        return True, self.search.rungs[-1][1]


def best_after_trial(
    searches: Sequence[Search], effort: Effort, tell: Tell = lambda _: None
) -> list[Search]:
    """The search whose optimizer and rate do best, and the second if it is close.

    Raises:
        NotReachableError: all diverge.
    """
    if len(searches) == 1:
        return list(searches)
    left = [_Trial(search) for search in searches]
    rows = [row for trial in left for row in trial.rows]
    first = max(effort.pilot * FIRST, PERIODS * max(row.tau1 for row in rows))
    rung = first * min(row.price.per_iteration for row in rows)
    while True:
        names = "; ".join(trial.search.pilot.stepping for trial in left)
        tell(f"{rung:.3g} simulated s of each of {names}")
        for trial in left:
            trial.advance(rung)
        left = [trial for trial in left if np.isfinite(trial.search.rungs[-1][1])]
        if not left:
            raise NotReachableError(
                f"all {len(searches)} optimizers and rates diverged: smaller rates may not"
            )
        left.sort(key=lambda trial: trial.score)
        (is_running, best), *others = [trial.score for trial in left[:2]]
        if not is_running or len(left) <= 2:
            close = [pair for pair in others if pair[0] == is_running and pair[1] <= CLOSE * best]
            return [trial.search for trial in left[: 1 + len(close)]]
        left, rung = left[: (len(left) + 1) // 2], 2 * rung
