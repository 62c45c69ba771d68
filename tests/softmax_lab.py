"""A planner's laboratory on a convex problem, and a place whose seconds are given as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from softmax_problem import SideBySide, SoftmaxProblem, SoftmaxSchedule

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.clock import Latencies, Uplink, load_profile
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import Choices, choices_of
from sdfeel.planner.pilot import PathPoint
from sdfeel.planner.price import LossCurve
from sdfeel.simulation.settings import Settings
from sdfeel.theory.split import kappa_split

__all__ = ["SoftmaxLaboratory", "TimedPlace", "plain_choices", "timed_place"]

ONLY = np.zeros(1, dtype=np.int64)


def plain_choices(**choose: Any) -> Choices:
    """Choices among schedules and averagers only."""
    plain = {f"codecs.{way}": "float32" for way in ("up", "down", "between")}
    return choices_of({**plain, "correction": "none", **choose})


@dataclass(frozen=True, eq=False)
class TimedPlace(Place):
    """A place with these seconds in place of a profile's."""

    times: Latencies | None = None

    def algorithm(self, **settings: Any) -> Algorithm:
        assert self.times is not None
        bits = dict.fromkeys(("up", "down", "between", "whole"), 1.0)
        uplink = Uplink(self.times, self.network, bits=bits)
        return replace(super().algorithm(**settings), uplink=uplink)


def timed_place(network: Network, times: Latencies, **settings: Any) -> TimedPlace:
    return TimedPlace(Settings.of(settings), network, load_profile("paper"), 1, times=times)


class SoftmaxLaboratory:
    """Trains candidates on one problem; `iterations` counts what all of them have cost."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.problem = problem
        self.iterations = 0
        self._models: dict[Candidate, SideBySide] = {}

    def advance(self, row: Candidate, iterations: int) -> None:
        if row not in self._models:
            if not row.is_plain:
                raise InputError("methods", row.methods, "this problem has schedules only")
            schedule = SoftmaxSchedule(row.tau1, row.tau2, row.averager.operator)
            self._models[row] = SideBySide(self.problem, [schedule])
            self._evaluate(row)
        models = self._models[row]
        while models.k < iterations:
            self.iterations += 1
            if len(models.step()):
                self._evaluate(row)

    def _evaluate(self, row: Candidate) -> None:
        models = self._models[row]
        iterations = np.append(row.curve.iterations, models.k)
        losses = np.append(row.curve.losses, models.losses(ONLY)[0])
        row.curve = LossCurve(iterations, row.price.seconds_of(iterations), losses)

    def measure(self, row: Candidate, sent: Mapping[str, Codec]) -> PathPoint:
        models = self._models[row]
        mean = models.means(ONLY)[..., 0]
        split = kappa_split(self.problem.client_gradients(mean), self.problem.network.shares)
        return PathPoint(float(models.losses(ONLY)[0]), split.inside**0.5, split.between**0.5)
