"""The planner: which tau1, tau2, alpha, averager, codecs and correction to use, and why.

1. A pilot that averages everything at every iteration: how the loss falls at best, with the split
   of kappa measured along the way, and what codecs make of its gradients.
2. Three short probes at the corners of the grid: how much deviation slows this problem down. One
   more with a correction, if that may be chosen: how much of the drift it leaves.
3. A prediction for every candidate; the event clock turns iterations into seconds.
4. Races among the best few, with shared randomness; every curve refines the prediction, and a
   candidate that then looks better than the winner gets its race.

It trains nothing itself: a `Laboratory` is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock import Latencies
from sdfeel.network import Network
from sdfeel.planner.calibration import calibrate
from sdfeel.planner.candidates import Candidate, candidates
from sdfeel.planner.doubts import doubts
from sdfeel.planner.methods import Methods
from sdfeel.planner.options import Option, Trial
from sdfeel.planner.pilot import NotReachableError, pilot_and_probes, run_pilot
from sdfeel.planner.pilot_path import LossCurve
from sdfeel.planner.prediction import Predictor
from sdfeel.planner.race import Entrant, Laboratory, Objective, outlook, race

__all__ = ["Effort", "Recommendation", "predicted_scores", "recommend"]


@dataclass(frozen=True)
class Effort:
    """How much a plan may cost: the pilot's iterations, and who races.

    first, later  entrants of the first heat and of the later ones
    heats         at most so many
    iterations    of all races together, where the objective is a budget: a long one is raced for a
                  part of its time, and the rest is predicted
    """

    pilot: int = 2000
    first: int = 8
    later: int = 4
    heats: int = 4
    iterations: int = 30_000


@dataclass(frozen=True, eq=False)
class Recommendation:
    """The recommendation and the evidence for it.

    option, trials  the local rule and rate, and how all did that stood to choice; if any did
    beside          iterations of plans for rules that were not chosen
    """

    network: Network
    objective: Objective
    choice: Candidate
    seconds: float  # measured simulated seconds to the target (or the budget)
    loss: float  # reached there
    predictor: Predictor
    ranking: tuple[Candidate, ...]  # by the final prediction, best first
    pilot: LossCurve
    probes: tuple[Entrant, ...]
    raced: tuple[Entrant, ...]
    doubts: tuple[str, ...] = field(default=())
    option: Option | None = None
    trials: tuple[Trial, ...] = ()
    beside: int = 0

    @property
    def methods(self) -> tuple[Methods, ...]:
        """What stood to choice beside schedules."""
        found = {str(one.methods): one.methods for one in self.ranking}
        return tuple(found.values())

    @property
    def iterations_spent(self) -> int:
        """Iterations of all runs that were made for this plan."""
        runs = [*self.probes, *self.raced]
        tried = sum(one.iterations for one in self.trials if not one.planned)
        made = int(self.pilot.iterations[-1]) + sum(one.iterations for one in runs)
        return made + tried + self.beside


Tell = Callable[[str], None]


def recommend(
    network: Network,
    latencies: Latencies,
    laboratory: Laboratory,
    objective: Objective,
    *,
    grid: Sequence[Candidate] | None = None,
    effort: Effort = Effort(),  # noqa: B008 - frozen
    tell: Tell = lambda _: None,
) -> Recommendation:
    """Recommendation for an objective; `grid` defaults to `candidates(network, latencies)`."""
    chosen = list(grid) if grid is not None else candidates(network, latencies)
    pilot, *corners = pilot_and_probes(network, latencies, chosen)
    tell("pilot: everything averaged at every iteration")
    path = run_pilot(laboratory, pilot, chosen, objective, effort.pilot)
    tell("probes: how much deviation slows this problem down")
    probes = [Entrant(corner, laboratory.start(corner)) for corner in corners]
    for probe in probes:
        made = 2 * int(path.curve.iterations[-1] / probe.candidate.gain)
        probe.run.advance(max(made, 3 * probe.candidate.tau1))
    predictor = calibrate(path, [(one.candidate, one.run.curve) for one in probes])
    raced: list[Entrant] = []
    for heat in range(effort.heats):
        entrants = _entrants(predictor, chosen, objective, raced, effort, heat)
        if not entrants:
            break
        tell(f"heat {heat + 1}: " + "; ".join(str(one) for one in entrants))
        results = [Entrant(one, laboratory.start(one)) for one in entrants]
        share = effort.iterations / effort.heats
        race(results, predictor, objective, _deadline(raced, objective), share)
        raced += results
        seen = [(one.candidate, one.run.curve) for one in [*probes, *raced]]
        predictor = calibrate(path, seen)
    winner = min(raced, key=lambda one: outlook(one, predictor, objective))
    _check_reached(winner, raced, objective)
    order = np.argsort(predicted_scores(predictor, chosen, objective), kind="stable")
    return Recommendation(
        network=network,
        objective=objective,
        choice=winner.candidate,
        seconds=_seconds(winner, objective),
        loss=_loss(winner, predictor, objective),
        predictor=predictor,
        ranking=tuple(chosen[row] for row in order),
        pilot=path.curve,
        probes=tuple(probes),
        raced=tuple(raced),
        doubts=tuple(doubts(winner, raced, chosen, predictor, objective)),
    )


def _seconds(winner: Entrant, objective: Objective) -> float:
    if objective.target is not None:
        return winner.score(objective)
    return float(objective.budget or 0.0)


def _loss(winner: Entrant, predictor: Predictor, objective: Objective) -> float:
    if objective.target is None:
        return outlook(winner, predictor, objective)
    return winner.run.curve.loss_at(winner.score(objective) * (1 + 1e-9))


def predicted_scores(
    predictor: Predictor, chosen: Sequence[Candidate], objective: Objective
) -> NDArray[np.float64]:
    """Seconds to the target, or loss within the budget: lower is better."""
    if objective.target is not None:
        return predictor.seconds(chosen, objective.target)
    return predictor.losses_within(chosen, float(objective.budget or 0.0))


def _entrants(
    predictor: Predictor,
    chosen: Sequence[Candidate],
    objective: Objective,
    raced: Sequence[Entrant],
    effort: Effort,
    heat: int,
) -> list[Candidate]:
    """The best by prediction; after the first heat only who may beat the winner."""
    predicted = predicted_scores(predictor, chosen, objective)
    order = np.argsort(predicted, kind="stable")
    done = {one.candidate.key for one in raced}
    fresh = [row for row in order if chosen[row].key not in done]
    if heat == 0:
        return _varied([chosen[row] for row in fresh], effort.first)
    best = min(outlook(one, predictor, objective) for one in raced)
    fresh = [row for row in fresh if predicted[row] < best]
    return [chosen[row] for row in fresh[: effort.later]]


def _varied(ranked: Sequence[Candidate], count: int) -> list[Candidate]:
    """The best, but where methods stand to choice those of one kind take half of the places at
    most, and so do those with one tau1, if there are others.

    What is known of a method before it was raced is a measurement of the pilot's; one that
    promises too much must not fill the heat. Nor must variants of one schedule.
    """
    if len({one.methods.kind for one in ranked}) == 1:
        return list(ranked[:count])
    several = len({one.tau1 for one in ranked}) > 1
    taken: Counter[str | int] = Counter()
    first: list[Candidate] = []
    for one in ranked:
        keys: list[str | int] = [one.methods.kind, *([one.tau1] if several else [])]
        if len(first) < count and all(taken[key] < max(1, count // 2) for key in keys):
            taken.update(keys)
            first.append(one)
    return first


def _deadline(raced: Sequence[Entrant], objective: Objective) -> float:
    """Nobody needs to run longer than the winner so far, or than the budget."""
    reached = [one.score(objective) for one in raced] if objective.target is not None else []
    return min([*reached, objective.budget or np.inf])


def _check_reached(winner: Entrant, raced: Sequence[Entrant], objective: Objective) -> None:
    if objective.target is None:
        if all(one.run.curve.diverged for one in raced):
            raise NotReachableError("all runs of the races diverged: try a smaller learning rate")
        return
    seconds = winner.score(objective)
    limit = objective.budget or np.inf
    if np.isfinite(seconds) and seconds <= limit:
        return
    best = min(one.run.curve.loss_at(limit) for one in raced)
    within = f"the budget of {limit:g} s" if np.isfinite(limit) else "the races"
    raise NotReachableError(
        f"{objective.shown(objective.target)} is not reachable within {within}, "
        f"best reached is {objective.shown(best)}"
    )
