"""Whole runs of `sdfeel run` as separate processes: two ranks against one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from sdfeel.errors import RunError
from speed.jobs import TAU1
from speed.measuring import spread, worker_environment

__all__ = ["ranks_against_one"]

# Little is evaluated: a first time, and at the end.
RANK_SETTINGS = (
    f"schedule.tau1={TAU1}",
    "network.servers=20",
    "network.clients_per_server=10",
    "data.partition=iid",
    "engine=fast",
    "evaluation.servers=false",
    "evaluation.train_samples=100",
    "evaluation.test_samples=100",
)


def sdfeel_run(settings: Sequence[str], threads: int, *flags: str) -> dict[str, Any]:
    """What `sdfeel run mnist-5k --json` answers."""
    chosen = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "sdfeel", "run", "mnist-5k", *chosen, *flags]
    done = subprocess.run(
        [*command, "--json"],
        capture_output=True,
        text=True,
        check=False,
        env=worker_environment(threads),
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"`sdfeel run` of the benchmark failed: {last}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ranks_against_one(steps: int, repetitions: int) -> dict[str, Any]:
    """200 clients on one core each: one rank, then two, and again.

    Client steps per second of the training loop, with aggregation and exchanges; starting the
    processes and reading the data is not part of it.
    """
    settings = (*RANK_SETTINGS, f"steps={steps}", f"evaluation.every={steps}")
    one: list[float] = []
    two: list[float] = []
    for _ in range(repetitions):
        one.append(_rate(sdfeel_run(settings, 1)))
        two.append(_rate(sdfeel_run(settings, 1, "--ranks", "2")))
    return {
        "clients": 200,
        "steps": steps,
        "one": spread(one).as_dict(),
        "two": spread(two).as_dict(),
        "ratios": [more / less for less, more in zip(one, two, strict=True)],
    }


def _rate(answer: dict[str, Any]) -> float:
    return float(answer["client_steps_per_second"])
