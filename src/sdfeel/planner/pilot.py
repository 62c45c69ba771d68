"""The pilot and the probes: short runs from which everything else is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import ConfigDict

from sdfeel.algorithm.methods.codecs import codecs_by_way
from sdfeel.algorithm.schedule import Schedule
from sdfeel.errors import RunError
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.price import Amount, Array, LossCurve
from sdfeel.planner.race import Laboratory, Objective, Tell

__all__ = [
    "LEVELS", "Levels", "NotReachableError", "PathPoint", "PilotPath", "pilot_and_probes",
    "run_pilot",
]  # fmt: skip

Levels = tuple[Array, Array]
LEVELS = 40
# A budget may allow more iterations than the pilot made: it is continued up to so many times.
BEYOND = 1000.0
# A loss of 0 (an accuracy of 1) is taken for this where its logarithm counts.
LEAST = 1e-12
# The slope of the loss at k is taken from k / SPAN to k SPAN: evaluations are noisy.
SPAN = 1.5


@dataclass(frozen=True)
class PathPoint:
    """Measured at one model of the pilot's path: kappa_in and kappa_between.

    owed  by codec and way ("int8 up"), what of an iteration's change the receivers lack (`owed`)
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    loss: Amount
    inside: Amount
    between: Amount
    owed: Mapping[str, Amount] = field(default_factory=dict)


@dataclass(frozen=True)
class PilotPath:
    """The pilot's run: its curve, made monotone, and what was measured along it."""

    curve: LossCurve
    points: tuple[PathPoint, ...]
    lr: float

    @property
    def levels(self) -> Levels:
        """Losses from the start to the best, and the pilot's iterations at each."""
        falling = np.minimum.accumulate(self.curve.losses)
        new = np.concatenate([[True], falling[1:] < falling[:-1]])
        losses, iterations = falling[new], self.curve.iterations[new].astype(float)
        rows = np.unique(np.linspace(0, len(losses) - 1, 4 * LEVELS).astype(int))
        return losses[rows], iterations[rows]

    @property
    def halfway(self) -> tuple[float, float]:
        """The losses after half of the pilot's iterations and at its end: how it fell last."""
        losses, iterations = self.levels
        return float(np.interp(iterations[-1] / 2, iterations, losses)), float(losses[-1])

    @property
    def continued(self) -> Levels:
        """Return the levels, and those that the pilot would have reached had it gone on.

        The loss lies between its start F_0 and 0. Its odds F / (F_0 - F) fall on with the power of
        k with which they fell in the pilot's second half. Far below F_0 this is a power law.
        """
        losses, iterations = self.levels
        end = iterations[-1]
        half, last = (max(loss, LEAST) / max(losses[0] - loss, 1e-9) for loss in self.halfway)
        power = max(np.log2(half / last), 1e-6)
        beyond = np.geomspace(end, BEYOND * end, LEVELS + 1)[1:]
        odds = last * (beyond / end) ** -power
        further = losses[0] * odds / (1 + odds)
        return np.concatenate([losses, further]), np.concatenate([iterations, beyond])

    def descent(self, iterations: Array) -> Array:
        """||grad F|| where the pilot had made so many iterations: eta ||grad F||^2 = -dF/dk."""
        losses, known = self.continued
        before, after = iterations / SPAN, np.minimum(iterations * SPAN, known[-1])
        fall = np.interp(before, known, losses) - np.interp(after, known, losses)
        return np.asarray(np.sqrt(fall / (after - before) / self.lr))

    def along(self, levels: Levels) -> tuple[Array, Array]:
        """kappa_in / ||grad F|| and kappa_between / ||grad F|| between two levels and the next."""
        inside = self.relative([point.inside for point in self.points], levels)
        between = self.relative([point.between for point in self.points], levels)
        return inside, between

    def relative(self, values: list[float], levels: Levels) -> Array:
        """What was measured at the points, over ||grad F||, between two levels and the next."""
        losses, iterations = ((part[1:] + part[:-1]) / 2 for part in levels)
        order = np.argsort([point.loss for point in self.points], kind="stable")
        at = [self.points[row].loss for row in order]
        along = _continued(losses, at, [values[row] for row in order], self.halfway)
        return np.asarray(along / self.descent(iterations))


def _continued(
    losses: Array, at: list[float], kappa: list[float], last: tuple[float, float]
) -> Array:
    """Interpolate kappa at these losses; below the pilot's last loss follow a power law.

    The power lies between 0, where clients go on disagreeing, and 1/2, where all can be fitted:
    a smooth loss above 0 has ||grad F_i||^2 <= 2 L F_i.
    """
    half, end = np.interp(last, at, kappa)
    falls = half > end > 0 and last[0] > last[1] > 0
    power = np.log(half / end) / np.log(last[0] / last[1]) if falls else 0.0
    below = np.minimum(losses / max(at[0], LEAST), 1.0) ** min(float(power), 0.5)
    return np.asarray(np.interp(losses, at, kappa) * below)


class NotReachableError(RunError):
    """No schedule reaches the target: says within what, and the best that was reached."""


def pilot_and_probes(place: Place, rows: Sequence[Candidate]) -> list[Candidate]:
    """The run that never deviates, and the corners of the grid.

    Corners have long periods inside clusters, between them, and both. The last takes the grid's
    slowest averager, with which drift grows oldest; the others agree at every exchange. One more
    corrects the longest periods most often, if a candidate corrects at all.
    """
    most1, most2 = max(row.tau1 for row in rows), max(row.tau2 for row in rows)
    periods = sorted({(most1, 1), (1, most2), (most1, most2)} - {(1, 1)}) or [(2, 1)]
    exact, slowest = place.network.averager("all-reduce"), max(rows, key=_contraction).averager
    plain = {"codecs": codecs_by_way({}), "correction": None}
    corners = [
        place.candidate(schedule=Schedule(tau1, tau2, 1), averager=exact, **plain)
        for tau1, tau2 in [(1, 1), *periods[:-1]]
    ]
    last = Schedule(*periods[-1], max(1, slowest.exchanges))
    corners.append(place.candidate(schedule=last, averager=slowest, **plain))
    corrected = [row for row in rows if row.correction is not None]
    if not corrected:
        return corners
    best = max(corrected, key=lambda row: (row.tau1, -row.tau2, -len(row.sent), -_contraction(row)))
    return [*corners, replace(best)]


def _contraction(row: Candidate) -> float:
    return row.averager.contraction


def run_pilot(
    pilot: Candidate,
    rows: Sequence[Candidate],
    laboratory: Laboratory,
    objective: Objective,
    limit: int,
    tell: Tell = lambda _: None,
) -> PilotPath:
    """Run until the target, or as many iterations as the fastest candidate makes in the budget.

    Where candidates get further in an iteration than the pilot, it may need as many times more.

    Raises:
        NotReachableError: it does not reach the target, or no lower loss at all.
    """
    limit = _limit(rows, objective, limit)
    tell(f"pilot: everything averaged at every iteration, at most {limit}")
    laboratory.advance(pilot, 1)
    _refuse_diverged(pilot)
    sent = {name: codec for row in rows for name, codec in row.sent.items()}
    points, is_done = [laboratory.measure(pilot, sent)], False
    for number, iterations in enumerate(_milestones(limit)):
        laboratory.advance(pilot, iterations)
        _refuse_diverged(pilot)
        tell(f"  {iterations} iterations: {objective.shown(pilot.curve.best)}")
        is_done = objective.target is not None and pilot.curve.best <= objective.target
        if is_done or number % 2 == 0 or iterations == limit:
            points.append(laboratory.measure(pilot, sent))
        if is_done:
            break
    if objective.target is not None and not is_done:
        within = "within the budget" if objective.budget is not None else "in the pilot"
        raise NotReachableError(
            f"{objective.shown(objective.target)} is not reachable {within} "
            f"({limit} iterations with everything averaged at each), "
            f"best reached is {objective.shown(pilot.curve.best)}"
        )
    path = PilotPath(pilot.curve, tuple(points), float(pilot.lr(1)))
    if len(path.levels[0]) < 2:
        start = objective.shown(float(pilot.curve.losses[0]))
        raise NotReachableError(
            f"no schedule gets below the {start} of the start: the pilot ({limit} iterations with "
            "everything averaged at each) did not; try another learning rate"
        )
    return path


def _limit(rows: Sequence[Candidate], objective: Objective, limit: int) -> int:
    """The most iterations of the pilot."""
    if objective.target is not None:
        limit = math.ceil(limit * max(row.gain for row in rows))
    if objective.budget is None:
        return limit
    most = max(row.price.iterations_within(objective.budget) for row in rows)
    if most < 1:
        raise NotReachableError(
            f"not reachable within the budget: {objective.budget:g} s do not suffice for one "
            f"iteration of any schedule"
        )
    return min(limit, most)


def _refuse_diverged(pilot: Candidate) -> None:
    if pilot.curve.diverged:
        raise NotReachableError(
            f"the pilot (everything averaged at each iteration) diverged before iteration "
            f"{pilot.curve.iterations[-1]}: try a smaller learning rate"
        )


def _milestones(limit: int) -> Iterator[int]:
    at = 5.0
    while at < limit:
        yield int(at)
        at *= 1.5
    yield limit
