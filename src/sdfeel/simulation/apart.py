"""A run whose data only its trainers see: a Flower app brings its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientData
from sdfeel.engines.fit import Loss
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.problem import Problem
from sdfeel.errors import InputError
from sdfeel.records.checkpoints import Row
from sdfeel.simulation.settings import AUTO, Settings


@dataclass(frozen=True, eq=False)
class Apart:
    """What is known of such data, and what trainers measure.

    samples  of each client
    others   what trainers measure of u_k
    about    what decides the run beside its settings, for its fingerprint
    """

    samples: NDArray[np.int64]
    others: Callable[[Tensor], Row]
    about: str = ""

    @property
    def data(self) -> ClientData:
        """Return as many samples as the clients have, with nothing in them."""
        total = int(self.samples.sum())
        ends = np.concatenate([[0], np.cumsum(self.samples)])
        return ClientData(torch.empty(total, 0), torch.zeros(1).expand(total), ends)

    @staticmethod
    def latency(settings: Settings) -> LatencyProfile:
        """Return the latency profile: what trainers compute cannot be counted."""
        profile = load_profile("paper") if settings.profile == AUTO else settings.latency
        if profile.flops_per_step is None:
            raise InputError("profile", str(settings.profile), "FLOPs of an app cannot be counted")
        return profile

    def problem(
        self, model: nn.Module, loss: Loss, settings: Settings, algorithm: Algorithm
    ) -> Problem:
        """Return the problem as trainers have it: the model may be one that cannot be called."""
        model = copy.deepcopy(model)
        return Problem(
            model,
            ParameterLayout.of(model),
            loss,
            self.data,
            settings.batch_size,
            settings.seed,
            rate=algorithm.rate,
            about=self.about,
        )
