"""What each method of a plan brought: predicted with it and without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sdfeel.planner.candidates import Candidate
from sdfeel.planner.planner import Recommendation, predicted_scores

__all__ = ["Gain", "brought"]


@dataclass(frozen=True)
class Gain:
    """Seconds to the target, or loss (or 1 - accuracy) at the end of the budget; None is never.

    what           the key that sets it: `codecs.up`, `correction`
    value          as chosen
    with_it        predicted for the choice
    without        for the same schedule without it (float32, no correction); None if not offered
    best_without   for the best of all candidates without it, and which that is
    """

    what: str
    value: str
    with_it: float | None
    without: float | None
    best_without: float | None
    best: str | None


def brought(plan: Recommendation) -> list[Gain]:
    """One row for each method that the plan chose; none for a plain choice."""
    every = list(plan.ranking)
    scores = predicted_scores(plan.predictor, every, plan.objective)
    by_key = {one.key: float(score) for one, score in zip(every, scores, strict=True)}
    own = plan.choice.methods.names
    found = []
    for what, value in own.items():
        nothing = "none" if what == "correction" else "float32"
        if value == nothing:
            continue
        others = [one for one in every if one.methods.names[what] == nothing]
        same = next((one for one in others if _differs_by(plan.choice, one, what)), None)
        best = min(others, key=lambda one: by_key[one.key], default=None)
        found.append(
            Gain(
                what=what,
                value=value,
                with_it=_score(by_key, plan.choice),
                without=_score(by_key, same),
                best_without=_score(by_key, best),
                best=None if best is None else str(best),
            )
        )
    return found


def _differs_by(a: Candidate, b: Candidate, what: str) -> bool:
    same = (a.tau1, a.tau2, a.alpha, a.averager.name) == (b.tau1, b.tau2, b.alpha, b.averager.name)
    return same and _others(a, what) == _others(b, what)


def _others(one: Candidate, what: str) -> Iterable[tuple[str, str]]:
    return {key: value for key, value in one.methods.names.items() if key != what}.items()


def _score(
    scores: dict[tuple[int, int, int, str, str], float], one: Candidate | None
) -> float | None:
    value = np.nan if one is None else scores.get(one.key, np.nan)
    return float(value) if np.isfinite(value) else None
