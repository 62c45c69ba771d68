"""The simulator on a deployment's network, schedule, data and seed: its servers' models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import sdfeel
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.topology import Topology
from sdfeel.engines.parameters import ParameterLayout


def as_simulated(
    deployment: Deployment,
    make_model: Callable[[], torch.nn.Module],
    make_data: Callable[[int, int], Any],
    **settings: Any,
) -> np.ndarray:
    """Train with the reference engine; `settings` are those of methods."""
    schedule = deployment.schedule
    run = sdfeel.train(
        make_model(),
        [make_data(n, client.samples) for n, client in enumerate(deployment.clients)],
        network=Topology(deployment).at(0).network,
        schedule=sdfeel.Schedule(schedule.tau1, schedule.tau2, schedule.alpha),
        steps=schedule.iterations,
        lr=0.1,
        batch_size=7,
        seed=deployment.seed,
        averager=schedule.averager,
        engine="reference",
        evaluate_every=schedule.iterations,
        **settings,
    )
    layout = ParameterLayout.of(make_model())
    return np.stack([layout.vector(model).detach().numpy() for model in run.server_models])
