"""Clients that compute nothing: what remains is the deployment itself.

`python idle_clients.py FILE` runs all clients of a deployment in one process, for measurements in
which processes would cost more.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sdfeel.algorithm.trainer import Model
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.client.trainers import make_trainer
from sdfeel.deploy.config import Deployment, load_deployment

__all__ = ["Idle", "run_clients", "trainer"]


class Idle:
    """A trainer that gives back what it gets."""

    def __init__(self, size: int, samples: int) -> None:
        self.size, self.samples = size, samples

    def train(self, model: Model, first: int, steps: int) -> Model:  # noqa: ARG002 - as asked
        return model


def trainer(deployment: Deployment, client: str) -> Idle:
    """Make the trainer that `local.trainer` names."""
    return Idle(int(deployment.local.options["size"]), deployment.client(client).samples)


async def run_clients(file: Path) -> None:
    """Run until every client has been told that training is over."""
    deployment = load_deployment(file)
    names = [client.name for client in deployment.clients]
    programs = [ClientProgram(deployment, n, make_trainer(deployment, n)) for n in names]
    await asyncio.gather(*(program.run() for program in programs))


if __name__ == "__main__":
    asyncio.run(run_clients(Path(sys.argv[1])))
