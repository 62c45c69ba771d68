"""What each method of a plan brought: predicted with it and without, or as it did when tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sdfeel.planner.candidates import Candidate
from sdfeel.planner.options import Option
from sdfeel.planner.planner import Recommendation, predicted_scores

__all__ = ["Gain", "brought"]


@dataclass(frozen=True)
class Gain:
    """Seconds to the target, or loss (or 1 - accuracy) at the end of the budget; None is never.

    what           the key that sets it: `codecs.up`, `correction`, `local`, `lr`
    value          as chosen
    with_it        predicted for the choice
    without        for the same schedule without it (float32, no correction); None if not offered
    best_without   for the best of all candidates without it, and which that is
    after          for `local` and `lr`: not predicted, but losses after so many seconds of trial,
                   in which all that stood to choice took part; without: the best other rule with
                   the same rate, or rate with the same rule
    """

    what: str
    value: str
    with_it: float | None
    without: float | None
    best_without: float | None
    best: str | None
    after: float | None = None


def brought(plan: Recommendation) -> list[Gain]:
    """One row for each method that the plan chose; none for a plain choice."""
    return [*_tried(plan), *_predicted(plan)]


def _tried(plan: Recommendation) -> list[Gain]:
    """The local rule and its rate, if others stood to choice."""
    chosen = next((one for one in plan.trials if one.option is plan.option), None)
    if chosen is None or not chosen.losses:
        return []
    found = []
    for what, other, own in (("local", "eta", "name"), ("lr", "name", "eta")):
        value = getattr(chosen.option, own)
        rivals = [one for one in plan.trials if getattr(one.option, own) != value]
        if not rivals:
            continue
        best = min(rivals, key=lambda one: one.losses[0])
        same = [one for one in rivals if _same(one.option, chosen.option, other)]
        nearest = min(same, key=lambda one: one.losses[0], default=None)
        found.append(
            Gain(
                what=what,
                value=value if what == "local" else f"{value:g}",
                with_it=_finite(chosen.losses[0]),
                without=None if nearest is None else _finite(nearest.losses[0]),
                best_without=_finite(best.losses[0]),
                best=str(best.option),
                after=chosen.seconds[0],
            )
        )
    return found


def _same(a: Option, b: Option, what: str) -> bool:
    return bool(getattr(a, what) == getattr(b, what))


def _predicted(plan: Recommendation) -> list[Gain]:
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
    return _finite(np.nan if one is None else scores.get(one.key, np.nan))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
