"""Losses and optimizers in the fast engine, beside softmax with SGD on the same network.

All contenders are in one process and work in turn, so that starting them costs little.
`python -m speed.kinds NAMES SECONDS REPETITIONS` answers with JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from sdfeel.errors import RunError
from speed.extent import Extent
from speed.measuring import Spread, cores, spread, worker_environment

__all__ = ["kinds_against_softmax"]

BASE = "cross-entropy"


def kinds_against_softmax(names: Sequence[str], extent: Extent) -> dict[str, Spread]:
    """Client steps a second with each loss or optimizer, over those of softmax with SGD."""
    numbers = [str(extent.seconds), str(extent.repetitions)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "speed.kinds", json.dumps([*names]), *numbers],
        capture_output=True,
        text=True,
        check=False,
        env=worker_environment(cores()),
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"losses and optimizers could not be measured: {last}")
    rates: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    base = rates.pop(BASE)
    return {
        name: spread([own / softmax for own, softmax in zip(each, base, strict=True)])
        for name, each in rates.items()
    }


def _measured(names: Sequence[str], seconds: float, repetitions: int) -> dict[str, list[float]]:
    import torch

    from speed.jobs import LOSSES, Job, make_contender

    torch.set_num_threads(cores())
    jobs = {
        name: Job("fast", cores(), loss=name)
        if name in LOSSES
        else Job("fast", cores(), optimizer=name)
        for name in (BASE, *names)
    }
    contenders = {name: make_contender(job) for name, job in jobs.items()}
    segments = {}
    for name, contender in contenders.items():
        contender.run(1)
        begun = time.perf_counter()
        contender.run(2)
        segments[name] = max(1, round(2 * seconds / (time.perf_counter() - begun)))
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(repetitions):
        for name in order:
            units, parts = contenders[name].run(segments[name])
            rates[name].append(units / parts["work"])
        order.reverse()
    return rates


if __name__ == "__main__":
    asked: Any = json.loads(sys.argv[1])
    print(json.dumps(_measured(asked, float(sys.argv[2]), int(sys.argv[3]))))
