"""A plan in sentences: what was chosen, what it brings, and what the evidence is."""

from __future__ import annotations

from collections.abc import Mapping

from sdfeel.planner.brought import Gain, brought
from sdfeel.planner.planner import Recommendation
from sdfeel.planner.race import Objective

__all__ = ["of_choice", "of_evidence"]

# Another topology is worth a line from this factor of the time on.
WORTH = 0.97


def of_choice(plan: Recommendation) -> list[str]:
    """What was chosen, what a round of it is made of, and what each method brought."""
    choice, goal = plan.choice, plan.objective
    reached = goal.shown(plan.loss if goal.target is None else goal.target)
    rule = f"{plan.option}: " if plan.trials else ""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in choice.cost.shares.items())
    return [
        f"{rule}{choice}: {reached} after {plan.seconds:.5g} simulated seconds",
        f"a round: {shares}; the bottleneck is {choice.cost.bottleneck}",
        *(_gain(gain, goal) for gain in brought(plan)),
    ]


def of_evidence(plan: Recommendation, topologies: Mapping[str, float]) -> list[str]:
    """How much was tried, what another graph would need, and what makes the evidence thin."""
    lines = [
        f"evidence: a pilot of {plan.pilot.iterations[-1]} iterations, {len(plan.probes)} probes "
        f"and {len(plan.raced)} raced; the prediction fits them to {plan.predictor.error:.0%}; "
        f"{plan.iterations_spent:,} iterations simulated"
    ]
    for name, factor in topologies.items():
        if factor < WORTH:
            lines.append(f"another topology: {name} would need {factor:.0%} of it (predicted)")
    return lines + [f"thin evidence: {doubt}" for doubt in plan.doubts]


def _gain(gain: Gain, goal: Objective) -> str:
    """What a method brought, in one line."""

    def shown(score: float | None) -> str:
        if score is None:
            return "never" if gain.after is None else "diverged"
        timed = goal.target is not None and gain.after is None
        return f"{score:.4g} s" if timed else goal.shown(score)

    how = "predicted" if gain.after is None else f"tried for {gain.after:.3g} s"
    said = f"{gain.what} = {gain.value}: {shown(gain.with_it)}"
    if gain.best is None:
        return f"{said}; nothing else stood to choice ({how})"
    said += "" if gain.without is None else f", without it {shown(gain.without)}"
    return f"{said}; the best without it: {gain.best}, {shown(gain.best_without)} ({how})"
