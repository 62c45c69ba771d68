"""A plan in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sdfeel.clock import Latencies
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.brought import brought
from sdfeel.planner.candidates import ALPHAS, PLANNED_AVERAGERS, Assemble, candidates
from sdfeel.planner.planner import Recommendation, predicted_scores
from sdfeel.planner.prediction import Numbers

__all__ = ["level", "other_topologies", "plan_dict", "rows"]

TOPOLOGIES = ("path", "ring", "star", "torus", "partial", "full")


def rows(plan: Recommendation, count: int = 10) -> list[dict[str, Any]]:
    """The best by the final prediction, with what the races measured.

    predicted_loss, raced_loss, raced_until  for a budget: at its end, and at the race's
    """
    target = level(plan)
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
            within["raced_loss"] = _finite(curve.best) if curve else None
            within["raced_until"] = float(curve.seconds[-1]) if curve else None
        table.append(
            {
                "tau1": one.tau1,
                "tau2": one.tau2,
                "alpha": one.alpha,
                "averager": one.averager.name,
                **one.methods.names,
                "predicted_iterations": _finite(iterations[row]),
                "predicted_seconds": _finite(seconds[row]),
                "raced_seconds": measured if np.isfinite(measured) else None,
                "dropped_at": found.dropped_at if found else None,
                **within,
            }
        )
    return table


def plan_dict(plan: Recommendation, topologies: dict[str, float] | None = None) -> dict[str, Any]:
    """Everything for JSON."""
    choice = plan.choice
    key = "accuracy" if plan.objective.accuracy else "loss"
    reached = 1 - plan.loss if plan.objective.accuracy else plan.loss
    return {
        "tau1": choice.tau1,
        "tau2": choice.tau2,
        "alpha": choice.alpha,
        "averager": choice.averager.name,
        **choice.methods.names,
        **_stepping(plan),
        "brought": [vars(one) for one in brought(plan)],
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
            **_fitted(plan.predictor.numbers),
            "kappa_inside": [point.inside for point in plan.predictor.path.points],
            "kappa_between": [point.between for point in plan.predictor.path.points],
            "thin": list(plan.doubts),
        },
        "ranking": rows(plan),
        "other_topologies": topologies or {},
    }


def _stepping(plan: Recommendation) -> dict[str, Any]:
    """The local rule and its rate, and how all did that stood to choice."""
    if plan.option is None:
        return {}
    trials = [
        {
            "local": one.option.name,
            "lr": one.option.eta,
            "seconds": list(one.seconds),
            "losses": [_finite(loss) for loss in one.losses],
            "planned": one.planned,
        }
        for one in plan.trials
    ]
    return {"local": plan.option.name, "lr": plan.option.eta, "trials": trials}


def other_topologies(
    plan: Recommendation,
    latencies: Latencies,
    averagers: Iterable[str] = PLANNED_AVERAGERS,
    alpha: Iterable[int] = ALPHAS,
    assembling: Callable[[Network], Assemble] | None = None,
) -> dict[str, float]:
    """Predicted best score on other graphs of the same servers, as a factor of this one's.

    Below 1 is a gain. Only a prediction: nothing was raced there. `averagers` and `alpha` are those
    that the plan chose from; `assembling` says what methods come to on another network.
    """
    options: dict[str, Any] = {"averagers": tuple(averagers), "alpha": tuple(alpha)}
    options |= {name: {getattr(one, name) for one in plan.ranking} for name in ("tau1", "tau2")}
    options["methods"] = plan.methods
    here = float(predicted_scores(plan.predictor, plan.ranking, plan.objective).min())
    found: dict[str, float] = {}
    for name in TOPOLOGIES:
        try:
            network = Network(plan.network.clusters, name, np.array(plan.network.shares.samples))
            if _links(network) == _links(plan.network):
                continue
            own = assembling(network) if assembling is not None else None
            grid = candidates(network, latencies, assemble=own, **options)
        except InputError:
            continue  # a torus needs a number of servers that is not prime; or nothing is stable
        best = predicted_scores(plan.predictor, grid, plan.objective).min()
        found[name] = float(best) / here
    return {name: factor for name, factor in found.items() if np.isfinite(factor)}


def _finite(value: float) -> float | None:
    """JSON has no infinity: None is never."""
    return float(value) if np.isfinite(value) else None


def _fitted(numbers: Numbers) -> dict[str, float]:
    return {name: value for name, value in vars(numbers).items() if name != "error"}


def _links(network: Network) -> set[frozenset[int]]:
    return {frozenset(link) for link in network.graph.edges()}


def level(plan: Recommendation) -> float:
    """The target, or what the budget's winner reached (not below what the pilot did)."""
    losses, _ = plan.predictor.path.levels
    wanted = plan.loss if plan.objective.target is None else plan.objective.target
    return max(wanted, float(losses[-1]))
