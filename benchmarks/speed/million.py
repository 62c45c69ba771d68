"""A million clients in one process: `sdfeel bench --million`.

1,000,000 clients of 10 samples, 1,000 servers on a ring, of whose clients 1 % take part in each of
10 periods. Clients are views of one store of 60,000 images: row numbers, drawn at random.
`python -m speed.million` carries it out and answers with JSON; so its memory is measured alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from sdfeel.errors import RunError
from speed.measuring import cores, worker_environment

__all__ = ["million"]

CLIENTS, SERVERS, SAMPLES, IMAGES = 1_000_000, 1_000, 10, 60_000
PERIODS, PART = 10, 0.01


def million() -> dict[str, Any]:
    """Carry it out in a process of its own: `seconds`, `gigabytes`, `steps_per_second` and more."""
    command = [sys.executable, "-P", "-m", "speed.million"]
    environment = worker_environment(cores())
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"the run with a million clients failed: {last}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _carry_out() -> dict[str, Any]:
    begun = time.perf_counter()
    import numpy as np
    import torch

    import sdfeel
    from processes import memory
    from sdfeel.data import Pixels
    from speed.jobs import SHAPES, TAU1, Job, make_model

    generator = torch.Generator().manual_seed(0)
    shape = (IMAGES, *SHAPES["mnist-cnn"])
    images = torch.randint(256, shape, generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (IMAGES,), generator=generator)
    parts: Any = np.random.default_rng(0).integers(0, IMAGES, (CLIENTS, SAMPLES))
    ready = time.perf_counter()
    result = sdfeel.train(
        make_model(Job("train")),
        (Pixels(images), labels),
        partition=parts,
        network=sdfeel.Network.ring(SERVERS, CLIENTS // SERVERS),
        schedule=sdfeel.Schedule(TAU1, 1, 1),
        steps=PERIODS * TAU1,
        participation=PART,
        batch_size=SAMPLES,
        engine="fast",
        test=(Pixels(images[:1000]), labels[:1000]),
        evaluate_every=PERIODS * TAU1,
    )
    ended = time.perf_counter()
    training = result.phases["local updates"]
    return {
        "seconds": ended - ready,
        "gigabytes": memory(peak=True) / 1e9,
        "steps_per_second": result.client_steps / training,
        "client_steps": result.client_steps,
        "phases": {**result.phases, "before the run": ended - ready - result.elapsed},
        "imports and data": ready - begun,
        "clients": CLIENTS,
        "servers": SERVERS,
        "periods": PERIODS,
        "tau1": TAU1,
    }


if __name__ == "__main__":
    print(json.dumps(_carry_out()))
