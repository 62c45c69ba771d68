"""What is asked of a plan: for what, from what to choose, and how much it may cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sdfeel.algorithm.codecs import WAYS
from sdfeel.errors import InputError, closest
from sdfeel.planner.candidates import ALPHAS, PLANNED_AVERAGERS, TAUS
from sdfeel.planner.planner import Effort
from sdfeel.planner.race import Objective

__all__ = ["CHOICES", "choices_of", "effort_of", "objective_of"]

# What a plan chooses, and from what; None: as `TrainingLaboratory` says, and for the local rule and
# its rate those of the settings.
CHOICES: dict[str, tuple[Any, ...] | None] = {
    "tau1": TAUS,
    "tau2": TAUS,
    "alpha": ALPHAS,
    "averager": PLANNED_AVERAGERS,
    **{f"codecs.{way}": None for way in WAYS},
    "correction": None,
    "local": None,
    "lr": None,
}


def objective_of(loss: float | None, accuracy: float | None, budget: float | None) -> Objective:
    """What to plan for, from what a user may ask."""
    if loss is not None and accuracy is not None:
        raise InputError("target-accuracy", accuracy, "one target: a loss or an accuracy")
    for name, value in {"target": loss, "target-accuracy": accuracy, "budget": budget}.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not number:
            raise InputError(name, value, "a number")
    if accuracy is None:
        return Objective(target=loss, budget=budget)
    if not 0 < accuracy < 1:
        raise InputError("target-accuracy", accuracy, "a share between 0 and 1, such as 0.9")
    return Objective(target=1 - accuracy, budget=budget, accuracy=True)


def effort_of(pilot: int, racers: int, race_iterations: int) -> Effort:
    """How much it may cost, checked."""
    least = {"pilot": (pilot, 10), "racers": (racers, 1), "race-iterations": (race_iterations, 1)}
    for name, (value, lowest) in least.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise InputError(name, value, f"a whole number, at least {lowest}")
    return Effort(pilot, racers, max(1, racers // 2), 3, race_iterations)


def choices_of(choose: Mapping[str, Any]) -> dict[str, tuple[Any, ...] | None]:
    """From what each is chosen: as asked, or as usual."""
    if not isinstance(choose, Mapping):
        raise InputError("choose", choose, 'what to choose from: {"tau1": (1, 5, 20)}')
    found = dict(CHOICES)
    for name, values in choose.items():
        if name not in CHOICES:
            raise InputError("choose", name, closest(str(name), CHOICES))
        several = isinstance(values, Sequence | set | frozenset) and not isinstance(values, str)
        own = tuple(values) if several else (values,)
        if not own:
            raise InputError(f"choose[{name!r}]", values, "at least one to choose from")
        if name in ("tau1", "tau2", "alpha"):
            if not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in own):
                raise InputError(name, values, "whole numbers above 0, such as (1, 3, 20)")
            own = tuple(sorted(set(own)))
        if name == "lr" and not all(_is_rate(one) for one in own):
            raise InputError("lr", values, "numbers above 0, such as (0.01, 0.1)")
        found[name] = own
    return found


def _is_rate(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value < math.inf
