"""Which local rule and rate: tried against each other, then schedules are planned with the best.

Every option begins what its plan begins with, the pilot and the plain probes: so a rule that needs
long periods to show what it can do shows it, and so does one that cannot bear them. An option is
as good as the best of its runs after the same simulated time, or at a target first. Rung by rung
the time doubles and the worse half goes, as in the races of schedules; who diverges loses.
Schedules are then planned with the best, and with the second if it is close; runs that were begun
go on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sdfeel.clock import Latencies
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.options import Option, Trial
from sdfeel.planner.pilot import NotReachableError, pilot_and_probes
from sdfeel.planner.planner import Effort, Recommendation, recommend
from sdfeel.planner.race import Objective, Run

__all__ = ["recommend_among"]

# The first rung, as a part of the pilot's iterations; and how many periods it has at least.
FIRST = 1 / 8
PERIODS = 3
# Schedules are planned with the second too if its loss, or its time to the target, is within this
# factor of the best's.
CLOSE = 1.05


@dataclass(eq=False)
class _Tried:
    """An option on its way down the rungs."""

    option: Option
    candidates: Sequence[Candidate]
    runs: list[Run]
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        for one, run in zip(self.candidates, self.runs, strict=True):
            run.advance(max(one.tau1, one.cost.iterations_within(seconds)))
        self.losses.append(min(_present(run, seconds) for run in self.runs))
        self.seconds.append(seconds)

    def score(self, objective: Objective) -> tuple[bool, float]:
        """Lower is better: who has reached the target by when it did, the others by their loss."""
        if objective.target is not None:
            reached = min(run.curve.seconds_to(objective.target) for run in self.runs)
            if math.isfinite(reached):
                return False, reached
        return True, self.losses[-1]

    def trial(self, planned: bool) -> Trial:
        made = sum(int(run.curve.iterations[-1]) for run in self.runs)
        return Trial(self.option, tuple(self.losses), tuple(self.seconds), made, planned)


def _present(run: Run, seconds: float) -> float:
    """The last loss that was evaluated until then: one that has left its best is no better."""
    before = run.curve.losses[run.curve.seconds <= seconds * (1 + 1e-9)]
    return float(before[-1]) if len(before) and not run.curve.diverged else math.inf


def recommend_among(
    network: Network,
    latencies: Latencies,
    options: Sequence[Option],
    objective: Objective,
    *,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Callable[[str], None] = lambda _: None,
) -> Recommendation:
    """`recommend`, which also chooses one of the options; it says what all of them did."""
    if not options:
        raise InputError("options", options, "at least one local rule and rate")
    tried = [_begin(network, latencies, option) for option in options]
    left = _halved(tried, objective, effort, tell)
    plans: list[tuple[float, _Tried, Recommendation]] = []
    refusals: list[NotReachableError] = []
    share = replace(effort, iterations=max(1, effort.iterations // len(left)))
    for one in left:
        tell(f"planning with {one.option}")
        own = one.option
        try:
            plan = recommend(
                network,
                latencies,
                own.laboratory,
                objective,
                grid=own.grid,
                effort=share,
                tell=tell,
            )
        except NotReachableError as refusal:
            refusals.append(refusal)
            continue
        plans.append((plan.seconds if objective.target is not None else plan.loss, one, plan))
    if not plans:
        raise refusals[0]
    _, chosen, plan = min(plans, key=lambda row: row[0])
    others = sum(other.iterations_spent for _, _, other in plans if other is not plan)
    trials = tuple(one.trial(one in left) for one in tried if one.losses)
    return replace(plan, option=chosen.option, trials=trials, beside=others)


def _begin(network: Network, latencies: Latencies, option: Option) -> _Tried:
    plain = [one for one in pilot_and_probes(network, latencies, option.grid) if one.methods.plain]
    return _Tried(option, plain, [option.laboratory.start(one) for one in plain])


def _halved(
    tried: Sequence[_Tried], objective: Objective, effort: Effort, tell: Callable[[str], None]
) -> list[_Tried]:
    """The best, and the second if it is close."""
    left = list(tried)
    if len(left) == 1:
        return left
    longest = max(one.tau1 for each in left for one in each.candidates)
    first = max(effort.pilot * FIRST, PERIODS * longest)
    cheapest = min(one.cost.per_iteration for each in left for one in each.candidates)
    rung = first * cheapest
    while True:
        tell(f"{rung:.3g} s of each of " + "; ".join(str(one.option) for one in left))
        for one in left:
            one.advance(rung)
        left = [one for one in left if math.isfinite(one.losses[-1])]
        if not left:
            raise NotReachableError(
                f"all {len(tried)} local rules and rates diverged: smaller rates may not"
            )
        left.sort(key=lambda one: one.score(objective))
        (running, best), *others = [one.score(objective) for one in left[:2]]
        if not running or len(left) <= 2:
            near = [score for kind, score in others if kind == running and score <= CLOSE * best]
            return left[: 1 + len(near)]
        left, rung = left[: (len(left) + 1) // 2], 2 * rung
