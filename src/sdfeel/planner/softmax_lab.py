"""A laboratory for the planner on a convex problem (see `sdfeel.theory.softmax`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sdfeel.algorithm.codecs import Codec
from sdfeel.errors import InputError
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.pilot_path import LossCurve, PathPoint
from sdfeel.theory.softmax import SideBySide, SoftmaxProblem, SoftmaxSchedule
from sdfeel.theory.split import kappa_split

__all__ = ["SoftmaxLaboratory"]

ONLY = np.zeros(1, dtype=np.int64)


class SoftmaxLaboratory:
    """Starts runs on one problem; `iterations` counts what all of them have cost."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.problem = problem
        self.lr = problem.lr
        self.iterations = 0

    def start(self, candidate: Candidate) -> _SoftmaxRun:
        if not candidate.methods.plain:
            raise InputError("methods", str(candidate.methods), "this problem has schedules only")
        return _SoftmaxRun(self, candidate)


class _SoftmaxRun:
    def __init__(self, laboratory: SoftmaxLaboratory, candidate: Candidate) -> None:
        self.laboratory = laboratory
        self.candidate = candidate
        schedule = SoftmaxSchedule(candidate.tau1, candidate.tau2, candidate.averager.operator)
        self.models = SideBySide(laboratory.problem, [schedule])
        self.seen = [(0, float(self.models.losses(ONLY)[0]))]

    @property
    def curve(self) -> LossCurve:
        iterations = np.array([k for k, _ in self.seen])
        losses = np.array([loss for _, loss in self.seen])
        return LossCurve(iterations, self.candidate.cost.seconds(iterations), losses)

    def advance(self, iterations: int) -> None:
        while self.models.k < iterations:
            self.laboratory.iterations += 1
            if len(self.models.step()):
                self.seen.append((self.models.k, float(self.models.losses(ONLY)[0])))

    def measure(self, sent: Mapping[tuple[str, str], Codec]) -> PathPoint:  # noqa: ARG002
        problem = self.laboratory.problem
        mean = self.models.means(ONLY)[..., 0]
        found = kappa_split(problem.client_gradients(mean), problem.network.shares)
        loss = float(self.models.losses(ONLY)[0])
        return PathPoint(loss, found.inside**0.5, found.between**0.5)
