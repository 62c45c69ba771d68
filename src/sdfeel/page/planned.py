"""What if, on the network of a plan: with the curve that its pilot predicts.

Everything that the planner needs lies in plan.json, so no training happens here: the curves are
those of `sdfeel.planner.saved.predicted`, and the clock is the plan's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.page.what_if import NUMBERS, WAYS, answered, changed, choices, number
from sdfeel.planner.assembling import assembling
from sdfeel.planner.saved import SavedPlan, candidate_of, methods_from, predicted

__all__ = ["AS_PLANNED", "what_if_planned"]

AS_PLANNED = "as planned"
FAR = 2.5  # times the planned seconds that a picture shows at least
FARTHEST = 20.0
MOST_POINTS = 500
Array = NDArray[np.float64]


def what_if_planned(asked: Mapping[str, str], plan: SavedPlan) -> dict[str, Any]:
    """As `what_if` answers, and the curves; what is not asked for is as it was planned."""
    numbers = {
        name: number(name, asked, int(plan.choice[name]), *NUMBERS[name][1:])
        for name in ("tau1", "tau2", "alpha")
    }
    own = {way: str(plan.choice.get(f"codecs.{way}", "float32")) for way in WAYS}
    own |= {"averager": plan.averager, "graph": AS_PLANNED, "profile": AS_PLANNED}
    words = {name: asked.get(name) or value for name, value in own.items()}
    profile = _profile(plan, words["profile"])
    clock, _ = changed(profile, asked, plan.network.clients)
    graph = None if words["graph"] == AS_PLANNED else words["graph"]
    network = plan.network
    if graph is not None:
        network = Network(network.clusters, graph, np.array(network.shares.samples))
    schedule = Schedule(numbers["tau1"], numbers["tau2"], numbers["alpha"])
    names = {**plan.choice, **{f"codecs.{way}": words[way] for way in WAYS}}
    one = candidate_of(
        plan, schedule, words["averager"], methods_from(names), graph=graph, profile=clock
    )
    algorithm = assembling(plan.settings, network, clock, plan.parameters)(
        schedule, one.averager, one.methods
    )
    curve = predicted(plan, schedule, words["averager"], names, graph=graph, profile=clock)
    sizes = {len(members) for members in network.clusters.members}
    settings = {
        "servers": network.servers,
        "clients": sizes.pop() if len(sizes) == 1 else None,
        "parameters": plan.parameters,
        "scheme": algorithm.scheme,
    }
    return {
        **answered(algorithm, network, one.averager, profile),
        "settings": {**numbers, **words, **settings},
        "commands": [],
        "profile": None,
        "plan": _curves(plan, curve),
    }


def _profile(plan: SavedPlan, name: str) -> LatencyProfile:
    """Another profile has other rates; a local update takes what the plan's model takes."""
    if name == AS_PLANNED:
        return plan.profile
    known = choices()["words"]["profile"]
    if name not in known:
        raise InputError("profile", name, f"one of {', '.join([AS_PLANNED, *known])}")
    return replace(load_profile(name), flops_per_step=plan.profile.flops_per_step)


def _curves(plan: SavedPlan, curve: tuple[Array, Array]) -> dict[str, Any]:
    """What is asked, what was planned, and the pilot as it was measured."""
    goal = plan.objective.target
    reached = None if goal is None else _seconds_to(curve, goal)
    far = min(max(FAR * plan.seconds, 1.2 * (reached or 0.0)), FARTHEST * plan.seconds)
    pilot = plan.predictor.path.curve
    drawn = {
        "this schedule": curve,
        "as planned": predicted(plan),
        "the pilot, measured": (pilot.seconds, pilot.losses),
    }
    return {
        "measure": "accuracy" if plan.objective.accuracy else "loss",
        "curves": {name: _shown(one, far, plan.objective.accuracy) for name, one in drawn.items()},
        "target": goal,
        "seconds": plan.seconds,
        "reached": reached,
        "reasons": list(plan.reasons),
    }


def _seconds_to(curve: tuple[Array, Array], loss: float) -> float | None:
    """Where a falling curve comes to a loss, by a straight line between two points."""
    seconds, losses = curve
    if not len(losses) or losses[-1] > loss:
        return None
    return float(np.interp(-loss, -losses, seconds))


def _shown(curve: tuple[Array, Array], far: float, is_accuracy: bool) -> dict[str, list[float]]:
    """Up to there, and no more points than can be seen."""
    seconds, losses = (part[curve[0] <= far] for part in curve)
    kept = np.unique(np.linspace(0, max(len(seconds) - 1, 0), MOST_POINTS).astype(int))
    kept = kept[: len(seconds)]
    values = 1 - losses if is_accuracy else losses
    return {"x": seconds[kept].tolist(), "y": values[kept].tolist()}
