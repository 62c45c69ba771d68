"""A run of a few steps, for tests of what may be given to `sdfeel.train` and what comes back."""

from __future__ import annotations

from typing import Any

from worlds import Problem

import sdfeel
from sdfeel import Schedule


def train(problem: Problem, model: Any = None, data: Any = None, **options: Any) -> sdfeel.Result:
    """With another model or other data if asked, and other settings."""
    own: dict[str, Any] = {
        "network": problem.network,
        "schedule": Schedule(2, 2, 1),
        "steps": 4,
        "lr": 0.1,
        "engine": "vectorised",
        "averager": "metropolis",
        "profile": "paper",
    }
    return sdfeel.train(
        problem.model if model is None else model,
        problem.datasets if data is None else data,
        **{**own, **options},
    )
