"""What a client runs on its own machine, found by import path; nothing here needs PyTorch."""

from __future__ import annotations

from typing import cast

from sdfeel.algorithm.methods.optimizers import SGD
from sdfeel.algorithm.trainer import Trainer
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.pace import check_trainer
from sdfeel.errors import InputError
from sdfeel.importing import imported

__all__ = ["make_trainer"]


def make_trainer(deployment: Deployment, client: str) -> Trainer:
    """The trainer that `local.trainer` names: a function, or `flower:` and a Flower app."""
    path = deployment.local.trainer
    check_trainer(deployment.pace, path)
    if path.startswith("flower:"):
        rule = deployment.local.rule
        if rule != SGD():
            raise InputError("local", rule, "a Flower app has an optimiser of its own")
        from sdfeel.deploy.client.flower_trainer import flower_trainer  # Flower is optional

        return flower_trainer(deployment, client, path.removeprefix("flower:"))
    make = imported("local.trainer", path, deployment.folder)
    return cast("Trainer", make(deployment, client))
