"""All clients of a deployment in one process: for measurements, where processes would cost more."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sdfeel.deploy.config import load_deployment
from sdfeel.deploy.node.client import ClientProgram
from sdfeel.deploy.node.trainers import make_trainer

__all__ = ["run_crowd"]


def run_crowd(file: Path) -> None:
    """Until every client has been told that training is over."""
    deployment = load_deployment(file)

    async def everybody() -> None:
        programs = [
            ClientProgram(deployment, client.name, make_trainer(deployment, client.name))
            for client in deployment.clients
        ]
        await asyncio.gather(*(program.run() for program in programs))

    asyncio.run(everybody())


if __name__ == "__main__":
    run_crowd(Path(sys.argv[1]))
