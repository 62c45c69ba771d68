"""What events cost: simulated seconds by what they went into, and bytes by way.

Sums over the same stream that a run folds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import SPANS, Event
from sdfeel.errors import InputError


@dataclass(frozen=True)
class Cost:
    """The simulated seconds and bytes of some events, one after the other.

    seconds  by name of `SPANS`, of the group that is done last
    total    from when that group began to the end
    bytes    sent "up", "between" servers and "down", by all
    """

    seconds: Mapping[str, float]
    total: float
    bytes: Mapping[str, float]


def cost_of(events: Iterable[Event]) -> Cost:
    """Sum up seconds and bytes."""
    listed = list(events)
    last = listed[-1]
    done = last.begun + sum(last.spans[name] for name in SPANS)
    # Of those that are done together, the one that waited for no other.
    late = np.flatnonzero(done >= done.max() * (1 - 1e-9))
    slowest = last.groups[late[int(np.argmin(last.spans["wait"][late]))]].number
    seconds, sent = dict.fromkeys(SPANS, 0.0), {"up": 0.0, "between": 0.0, "down": 0.0}
    begun = []
    for event in listed:
        for at, group in enumerate(event.groups):
            if group.number == slowest:
                begun.append(float(event.begun[at]))
                for name in SPANS:
                    seconds[name] += float(event.spans[name][at])
        for way, count in event.bytes.items():
            sent[way] += count
    return Cost(seconds, last.ends - min(begun), sent)


def first_round(algorithm: Algorithm) -> list[Event]:
    """The events of the first round, with everyone present who can be."""
    if "rounds" in algorithm.pace.breaks:
        raise InputError("pace", type(algorithm.pace).__name__, "has no rounds")
    everyone = replace(algorithm.participation, beta=1.0)
    stream = replace(algorithm, participation=everyone).events()
    return list(islice(stream, algorithm.schedule.at(0).tau2))


def round_cost(algorithm: Algorithm) -> Cost:
    """Return what one round costs with all clients present that can be."""
    return cost_of(first_round(algorithm))


def iterations_within(algorithm: Algorithm, seconds: float) -> int:
    """Return the iterations of a run until the first event that ends at or after `seconds`."""
    if seconds == math.inf:
        raise InputError("until", seconds, "a number of simulated seconds; or steps=")
    return next(max(event.k, 1) for event in algorithm.events() if event.ends >= seconds)


def steps_per_iteration(algorithm: Algorithm, iterations: int) -> float:
    """Return how many clients make a step in an iteration of the slowest group, on average."""
    steps = k = 0
    for event in algorithm.events(iterations):
        steps, k = steps + sum(group.steps for group in event.groups), event.k
        if k >= iterations:
            break
    return steps / k
