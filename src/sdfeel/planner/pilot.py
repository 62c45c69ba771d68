"""The pilot and the probes: short runs from which everything else is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from sdfeel.algorithm.codecs import Codec
from sdfeel.clock import Latencies
from sdfeel.errors import RunError
from sdfeel.network import Network
from sdfeel.planner.candidates import Candidate, cost
from sdfeel.planner.methods import codec_name
from sdfeel.planner.pilot_path import PilotPath
from sdfeel.planner.race import Laboratory, Objective, Run

__all__ = ["NotReachableError", "pilot_and_probes", "run_pilot"]


class NotReachableError(RunError):
    """No schedule reaches the target: says within what, and the best that was reached."""


def pilot_and_probes(
    network: Network, latencies: Latencies, chosen: Sequence[Candidate]
) -> list[Candidate]:
    """The run that never deviates, and the corners of the grid.

    Corners have long periods inside clusters, between them, and both. The last takes the grid's
    slowest averager, with which drift grows oldest; the others agree at every exchange.
    """
    most1, most2 = max(one.tau1 for one in chosen), max(one.tau2 for one in chosen)
    periods = sorted({(most1, 1), (1, most2), (most1, most2)} - {(1, 1)}) or [(2, 1)]
    exact = network.averager("all-reduce")
    slowest = max(chosen, key=lambda one: one.averager.contraction)
    averagers = [(1, exact)] * len(periods) + [(slowest.alpha, slowest.averager)]
    gains = {one.tau1: one.gain for one in chosen}
    plain = [
        Candidate(
            tau1, tau2, alpha, by, cost(network, latencies, tau1, tau2, by),
            gain=gains.get(tau1, 1.0),
        )
        for (tau1, tau2), (alpha, by) in zip([(1, 1), *periods], averagers, strict=True)
    ]  # fmt: skip
    return plain + _corrected_probe(chosen)


def _corrected_probe(chosen: Sequence[Candidate]) -> list[Candidate]:
    """Who corrects most often the longest periods, if any corrects at all."""
    corrected = [one for one in chosen if one.methods.correction is not None]
    if not corrected:
        return []
    best = max(
        corrected,
        key=lambda one: (
            one.tau1, -one.tau2, -len(one.methods.lossy), -one.averager.contraction
        ),
    )  # fmt: skip
    return [best]


def run_pilot(
    laboratory: Laboratory,
    candidate: Candidate,
    chosen: Sequence[Candidate],
    objective: Objective,
    limit: int,
) -> PilotPath:
    """Run until the target, or as many iterations as the fastest schedule makes in the budget.

    Where others get further in an iteration than the pilot, it may need as many times more.
    """
    if objective.target is not None:
        limit = math.ceil(limit * max(one.gain for one in chosen))
    if objective.budget is not None:
        most = max(one.cost.iterations_within(objective.budget) for one in chosen)
        if most < 1:
            raise NotReachableError(
                f"not reachable within the budget: {objective.budget:g} s do not suffice for one "
                f"iteration of any schedule"
            )
        limit = min(limit, most)
    run = laboratory.start(candidate)
    _refuse_diverged(run)
    sent = _sent(chosen)
    points = [run.measure(sent)]
    for number, iterations in enumerate(_milestones(limit)):
        run.advance(iterations)
        _refuse_diverged(run)
        done = objective.target is not None and run.curve.best <= objective.target
        if done or number % 2 == 0 or iterations == limit:
            points.append(run.measure(sent))
        if done:
            break
    else:
        if objective.target is not None:
            within = "within the budget" if objective.budget is not None else "in the pilot"
            raise NotReachableError(
                f"{objective.shown(objective.target)} is not reachable {within} "
                f"({limit} iterations with everything averaged at each), "
                f"best reached is {objective.shown(run.curve.best)}"
            )
    path = PilotPath(run.curve, tuple(points), laboratory.lr)
    if len(path.levels[0]) < 2:
        start = objective.shown(float(run.curve.losses[0]))
        raise NotReachableError(
            f"no schedule gets below the {start} of the start: the pilot ({limit} iterations with "
            "everything averaged at each) did not; try another learning rate"
        )
    return path


def _refuse_diverged(run: Run) -> None:
    if run.curve.diverged:
        raise NotReachableError(
            f"the pilot (everything averaged at each iteration) diverged before iteration "
            f"{run.curve.iterations[-1]}: try a smaller learning rate"
        )


def _sent(chosen: Sequence[Candidate]) -> dict[tuple[str, str], Codec]:
    """What candidates send otherwise than it is: by way and name."""
    return {
        (way, codec_name(codec)): codec
        for one in chosen
        for way, codec in one.methods.lossy.items()
    }


def _milestones(limit: int) -> Iterable[int]:
    at = 5.0
    while at < limit:
        yield int(at)
        at *= 1.5
    yield limit
