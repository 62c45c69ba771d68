"""A plan in numbers, in words and as a figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sdfeel.clock import Latencies
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.theory.candidates import ALPHAS, PLANNED_AVERAGERS, Candidate, candidates
from sdfeel.theory.planner import Plan, predicted_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["frontier_figure", "other_topologies", "plan_dict", "rows"]

TOPOLOGIES = ("path", "ring", "star", "torus", "partial", "full")


def rows(plan: Plan, count: int = 10) -> list[dict[str, Any]]:
    """The best by the final prediction, with what the races measured.

    predicted_loss, raced_loss, raced_until  for a budget: at its end, and at the race's
    """
    target = _level(plan)
    shown = list(plan.ranking[:count])
    iterations = plan.predictor.iterations(shown, target)
    seconds = plan.predictor.seconds(shown, target)
    raced = {one.candidate.key: one for one in plan.raced}
    table = []
    for row, one in enumerate(shown):
        found = raced.get(one.key)
        measured = found.run.curve.seconds_to(target) if found else float("nan")
        within: dict[str, Any] = {}
        if plan.objective.target is None:
            score = predicted_scores(plan.predictor, [one], plan.objective)
            within["predicted_loss"] = float(score[0])
            curve = found.run.curve if found else None
            within["raced_loss"] = curve.best if curve else None
            within["raced_until"] = float(curve.seconds[-1]) if curve else None
        table.append(
            {
                "tau1": one.tau1,
                "tau2": one.tau2,
                "alpha": one.alpha,
                "averager": one.averager.name,
                "predicted_iterations": float(iterations[row]),
                "predicted_seconds": float(seconds[row]),
                "raced_seconds": measured if np.isfinite(measured) else None,
                "dropped_at": found.dropped_at if found else None,
                **within,
            }
        )
    return table


def plan_dict(plan: Plan, topologies: dict[str, float] | None = None) -> dict[str, Any]:
    """Everything for JSON."""
    choice = plan.choice
    key = "accuracy" if plan.objective.accuracy else "loss"
    reached = 1 - plan.loss if plan.objective.accuracy else plan.loss
    return {
        "tau1": choice.tau1,
        "tau2": choice.tau2,
        "alpha": choice.alpha,
        "averager": choice.averager.name,
        "seconds_to_target": plan.seconds,
        f"{key}_reached": reached,
        "bottleneck": choice.cost.bottleneck,
        "round": choice.cost.parts,
        "shares": choice.cost.shares,
        "evidence": {
            "pilot_iterations": int(plan.pilot.iterations[-1]),
            "probes": [str(one.candidate) for one in plan.probes],
            "raced": [str(one.candidate) for one in plan.raced],
            "iterations_spent": plan.iterations_spent,
            "fit_error": plan.predictor.error,
            "sensitivity": plan.predictor.sensitivity,
            "saturation": plan.predictor.saturation,
            "kappa_inside": [point.inside for point in plan.predictor.path.points],
            "kappa_between": [point.between for point in plan.predictor.path.points],
            "thin": list(plan.doubts),
        },
        "ranking": rows(plan),
        "other_topologies": topologies or {},
    }


def other_topologies(
    plan: Plan,
    latencies: Latencies,
    averagers: Iterable[str] = PLANNED_AVERAGERS,
    alpha: Iterable[int] = ALPHAS,
) -> dict[str, float]:
    """Predicted best score on other graphs of the same servers, as a factor of this one's.

    Below 1 is a gain. Only a prediction: nothing was raced there. `averagers` and `alpha` are those
    that the plan chose from.
    """
    options: dict[str, Any] = {"averagers": tuple(averagers), "alpha": tuple(alpha)}
    options |= {name: {getattr(one, name) for one in plan.ranking} for name in ("tau1", "tau2")}
    here = float(predicted_scores(plan.predictor, plan.ranking, plan.objective).min())
    found: dict[str, float] = {}
    for name in TOPOLOGIES:
        try:
            network = Network(plan.network.clusters, name, np.array(plan.network.shares.samples))
        except InputError:
            continue  # a torus needs a number of servers that is not prime
        if _links(network) == _links(plan.network):
            continue
        grid = candidates(network, latencies, **options)
        best = predicted_scores(plan.predictor, grid, plan.objective).min()
        found[name] = float(best) / here
    return found


def _links(network: Network) -> set[frozenset[int]]:
    return {frozenset(link) for link in network.graph.edges()}


def frontier_figure(plan: Plan) -> Figure:
    """Two panels: price against pace of every candidate, and time against target of the best."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.2), layout="constrained")
    price, time = figure.subplots(1, 2)
    target = _level(plan)
    every = list(plan.ranking)
    per_iteration = np.array([one.cost.per_iteration for one in every])
    iterations = plan.predictor.iterations(every, target)
    price.loglog(per_iteration, iterations, ".", color="0.6", label="candidates (predicted)")
    frontier = _frontier(per_iteration, iterations)
    price.loglog(per_iteration[frontier], iterations[frontier], "-", color="C0", label="frontier")
    chosen = plan.predictor.iterations([plan.choice], target)
    price.loglog([plan.choice.cost.per_iteration], chosen, "*", color="C3", ms=12, label="planned")
    price.set_xlabel("simulated seconds per iteration")
    price.set_ylabel(f"iterations to {plan.objective.shown(target)}")
    price.legend()
    losses, _ = plan.predictor.path.levels
    levels = losses[len(losses) // 10 :]
    for number, one in enumerate(_shown(plan)):
        _, needed = plan.predictor.needed([one])
        seconds = needed[0][-len(levels) :] * one.cost.per_iteration
        time.plot(seconds, levels, color=f"C{number}", label=str(one))
    for result in plan.raced:
        curve = result.run.curve
        time.plot(curve.seconds, curve.losses, ".", color="0.7", ms=2, zorder=0)
    time.axhline(target, color="0.4", lw=0.8, ls="--")
    time.set_xlabel("simulated seconds (lines predicted, dots raced)")
    time.set_ylabel("1 - accuracy" if plan.objective.accuracy else "training loss")
    time.legend(fontsize="small")
    return figure


def _shown(plan: Plan) -> list[Candidate]:
    best = [one for one in plan.ranking if one.key != plan.choice.key]
    return [plan.choice, *best[:3]]


def _level(plan: Plan) -> float:
    """The target, or what the budget's winner reached (not below what the pilot did)."""
    losses, _ = plan.predictor.path.levels
    wanted = plan.loss if plan.objective.target is None else plan.objective.target
    return max(wanted, float(losses[-1]))


def _frontier(
    price: np.ndarray[Any, np.dtype[np.float64]], pace: np.ndarray[Any, np.dtype[np.float64]]
) -> list[int]:
    """Who is cheapest for its pace, from the cheapest on."""
    kept: list[int] = []
    for row in np.lexsort((pace, price)):
        if not kept or pace[row] < pace[kept[-1]]:
            kept.append(int(row))
    return kept
