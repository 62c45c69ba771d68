"""What "auto" does for models that no engine was made for, against a plain loop on all cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from speed import measuring
from speed.extent import Extent
from speed.jobs import TAU1, Job, make_model
from speed.measuring import Measured, cores, ratio, spread
from speed.zoo import LARGE, LARGE_TAU1

__all__ = ["auto_against_loop"]


def auto_against_loop(name: str, extent: Extent) -> dict[str, Any]:
    """One model of the zoo, in several starts of all processes.

    Where a start happens to put things in memory makes a plain loop up to a fifth slower for as
    long as it lives: the ratio is the median of those of the starts, and its spread is theirs.
    """
    clients, tau1 = max(LARGE.get(name, 16), cores()), LARGE_TAU1 if name in LARGE else TAU1
    base = Job("plain-loop", model=name, clients=clients, samples=20, servers=2, tau1=tau1)
    share = replace(base, clients=clients // cores()).as_dict()
    auto = replace(base, kind="auto", threads=cores())
    repetitions = extent.large_repetitions if name in LARGE else extent.zoo_repetitions
    starts: list[dict[str, Measured]] = []
    for _ in range(extent.zoo_starts):
        teams = {"loop": [share] * cores(), "auto": [auto.as_dict()]}
        starts.append(measuring.measure(teams, repetitions // extent.zoo_starts, extent.seconds))
        # It has chosen: the next starts need not measure that again.
        auto = replace(auto, kind=starts[0]["auto"].engine or "auto")
    found = [ratio(start["auto"], start["loop"]) for start in starts]
    ratios = [each.median for each in found if each is not None]
    return {
        "parameters": sum(p.numel() for p in make_model(base).parameters()),
        "ratio": spread(ratios).as_dict() if ratios else None,
        "engine": starts[0]["auto"].engine,
        "loop_steps_per_second": spread([r for s in starts for r in s["loop"].rates]).as_dict(),
    }
