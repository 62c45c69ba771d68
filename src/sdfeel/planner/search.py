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
from dataclasses import replace

import numpy as np

from sdfeel.errors import InputError
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import CHOICES, Choices, paces_beside, steppings
from sdfeel.planner.pilot import NotReachableError, run_pilot
from sdfeel.planner.plan import Plan
from sdfeel.planner.prediction import calibrate
from sdfeel.planner.race import AS_GOOD, Effort, Laboratory, Objective, Tell, race, simplest
from sdfeel.planner.report import reasons_of, report_of

__all__ = ["recommend"]

# The first rung of a trial, as a part of the pilot's iterations; and its periods at least.
FIRST = 1 / 8
PERIODS = 3
# The second optimizer and rate is searched too if its loss, or its time, is within this factor.
CLOSE = 1.05


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
    plans = [Plan.begin(each, objective, choices) for each in steppings(place, choices)]
    best = _best_after_trial(plans, laboratory, effort, tell)
    share = replace(effort, race_iterations=max(1, effort.race_iterations // len(best)))
    done: list[Plan] = []
    refusals: list[NotReachableError] = []
    for plan in best:
        tell(f"{len(plan.grid)} candidates with {plan.pilot.stepping}")
        try:
            _search(plan, laboratory, share, tell)
            done.append(plan)
        except NotReachableError as refusal:
            refusals.append(refusal)
    if not done:
        raise refusals[0]

    def score(row: Candidate) -> float:
        return objective.headline(row)[0 if objective.target is not None else 1]

    choice = simplest([plan.choice for plan in done], score, objective.highest)
    plan = next(plan for plan in done if plan.choice is choice)
    tell("what other topologies would need")
    plan.report = report_of(plan, plans, best)
    plan.reasons = reasons_of(plan)
    return plan


def _search(plan: Plan, laboratory: Laboratory, effort: Effort, tell: Tell) -> None:
    """Find the choice of a plan: its `predictor`, `best` and `choice`.

    Raises:
        NotReachableError: nothing reaches the target, or everything diverges.
    """
    objective = plan.objective
    path = run_pilot(plan.pilot, plan.grid, laboratory, objective, effort.pilot, tell)
    tell("probes: how much deviation slows this problem down")
    for probe in plan.probes:
        iterations = 2 * int(path.curve.iterations[-1] / probe.gain)
        iterations = max(iterations, 3 * probe.tau1)
        tell(f"  {probe}: {iterations} iterations")
        laboratory.advance(probe, iterations)
    plan.predictor = calibrate(path, plan.probes)
    plan.predict(plan.grid)
    for number in range(effort.races):
        rows = _next_racers(plan, effort)
        if not rows:
            break
        tell(f"race {number + 1}: " + "; ".join(str(row) for row in rows))
        share = effort.race_iterations / effort.races
        race(rows, laboratory, objective, _deadline(plan), share, tell)
        plan.predictor = calibrate(path, [*plan.probes, *plan.in_rounds])
        plan.predict(plan.grid)
    plan.best = simplest(plan.in_rounds, plan.objective.outlook, objective.highest)
    _check_reached(plan, plan.best)
    plan.choice = _best_of_all_paces(plan, laboratory, tell)
    _check_reached(plan, plan.choice)


def _deadline(plan: Plan) -> float:
    """No candidate needs to run longer than one that is as good as the best, or the budget."""
    is_timed = plan.objective.target is not None
    reached = [plan.objective.measured(row) for row in plan.in_rounds] if is_timed else []
    return min([*(AS_GOOD * seconds for seconds in reached), plan.objective.limit])


def _next_racers(plan: Plan, effort: Effort) -> list[Candidate]:
    """The best by prediction; later those that may beat the best so far.

    If there are none, the simplest that may be as good, if it is simpler than the best.
    """
    score, raced = plan.objective.predicted, plan.in_rounds
    fresh = sorted((row for row in plan.grid if not row.was_trained), key=score)
    if not raced:
        return _varied(fresh, effort.racers)
    least = min(plan.objective.outlook(row) for row in raced)
    better = [row for row in fresh if score(row) < least]
    if better:
        return better[: max(1, effort.racers // 2)]
    most = simplest(raced, plan.objective.outlook).complexity
    as_good = [row for row in fresh if score(row) <= least * AS_GOOD and row.complexity < most]
    return sorted(as_good, key=lambda row: row.complexity)[:1]


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


def _check_reached(plan: Plan, row: Candidate) -> None:
    objective, limit = plan.objective, plan.objective.limit
    if objective.target is None:
        if row.curve.diverged:
            raise NotReachableError("all runs of the races diverged: try a smaller learning rate")
        return
    if objective.measured(row) <= min(limit, np.finfo(float).max):
        return
    loss = min(row.curve.loss_at(limit) for row in plan.raced)
    within = f"the budget of {limit:g} s" if np.isfinite(limit) else "the races"
    raise NotReachableError(
        f"{objective.shown(objective.target)} is not reachable within {within}, "
        f"best reached is {objective.shown(loss)}"
    )


def _best_of_all_paces(plan: Plan, laboratory: Laboratory, tell: Tell) -> Candidate:
    """Race the best of each kind of pace by prediction until the best in rounds was done."""
    names = plan.choices["pace"]
    in_rounds = [plan.best] if names is None or "synchronous" in names else []
    plan.others = paces_beside(plan.place, plan.choices, plan.best)
    if not plan.others and not in_rounds:
        raise InputError("pace", names, "no client is later than others: a deadline is for that")
    plan.predict(plan.others)
    by_kind: dict[str, Candidate] = {}
    for row in sorted(plan.others, key=plan.objective.predicted):
        by_kind.setdefault(row.pace.kind, row)
    rows = list(by_kind.values())
    for row in rows:
        tell(f"pace: {row}")
    if rows:
        is_free = plan.objective.target is not None and not in_rounds
        deadline = plan.objective.limit if is_free else plan.until
        race(rows, laboratory, plan.objective, deadline, tell=tell, drops=False)
    return simplest([*in_rounds, *rows], plan.measured)


def _best_after_trial(
    plans: Sequence[Plan], laboratory: Laboratory, effort: Effort, tell: Tell
) -> list[Plan]:
    """The plan whose optimizer and rate do best, and the second if it is close.

    Raises:
        NotReachableError: all diverge.
    """
    if len(plans) == 1:
        return list(plans)
    left, rows = list(plans), [row for plan in plans for row in _tried(plan)]
    first = max(effort.pilot * FIRST, PERIODS * max(row.tau1 for row in rows))
    rung = first * min(row.price.per_iteration for row in rows)
    while True:
        names = "; ".join(plan.pilot.stepping for plan in left)
        tell(f"{rung:.3g} simulated s of each of {names}")
        for plan in left:
            plan.rungs.append((rung, _loss_at(rung, plan, laboratory)))
        left = [plan for plan in left if np.isfinite(plan.rungs[-1][1])]
        if not left:
            raise NotReachableError(
                f"all {len(plans)} optimizers and rates diverged: smaller rates may not"
            )
        left.sort(key=_score)
        (is_running, best), *others = [_score(plan) for plan in left[:2]]
        if not is_running or len(left) <= 2:
            close = [pair for pair in others if pair[0] == is_running and pair[1] <= CLOSE * best]
            return left[: 1 + len(close)]
        left, rung = left[: (len(left) + 1) // 2], 2 * rung


def _tried(plan: Plan) -> list[Candidate]:
    """What an optimizer with its rate is tried with."""
    return [plan.pilot, *(row for row in plan.probes if row.is_plain)]


def _loss_at(seconds: float, plan: Plan, laboratory: Laboratory) -> float:
    """Train until a simulated second: the lowest loss of all runs there."""
    losses = []
    for row in _tried(plan):
        laboratory.advance(row, max(row.tau1, row.price.iterations_within(seconds)))
        before = row.curve.losses[row.curve.seconds <= seconds * (1 + 1e-9)]
        # The last loss, not the best: a run that has left its best is no better.
        losses.append(np.inf if row.curve.diverged else before[-1])
    return float(min(losses))


def _score(plan: Plan) -> tuple[bool, float]:
    """Lower is better: those that reached the target by when they did, others by their loss."""
    target = plan.objective.target
    if target is not None:
        reached = min(row.curve.seconds_to(target) for row in _tried(plan))
        if np.isfinite(reached):
            return False, reached
    return True, plan.rungs[-1][1]
