"""A program of its own: trains, is killed at random moments, and goes on. Used by a test.

The trainings are forks of this process, so that torch is imported once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import torch
from worlds import classification

import sdfeel
import sdfeel.api  # before the forks: names of sdfeel are imported when first used
from sdfeel.records.checkpoints import read_checkpoint

torch.set_num_threads(1)

STEPS = 360
KILLS = 5


def train(out: Path, checkpoint_seconds: float) -> None:
    warnings.simplefilter("ignore")
    problem = classification((12, 5, 9), [[0, 2], [1]])
    sdfeel.train(
        problem.model,
        problem.datasets,
        network=problem.network,
        schedule=sdfeel.Schedule(3, 2, 1),
        steps=STEPS,
        lr=0.05,
        batch_size=4,
        engine="reference",
        evaluate_every=50,
        out=out,
        resume=True,
        checkpoint_seconds=checkpoint_seconds,
    )


def in_a_fork(out: Path, checkpoint_seconds: float) -> int:
    child = os.fork()
    if child:
        return child
    try:
        train(out, checkpoint_seconds)
    except BaseException as problem:
        print(repr(problem), file=sys.stderr)
        os._exit(1)
    os._exit(0)


def wait_for(child: int, checkpoint: Path, changes: int) -> bool:
    """Until the checkpoint was replaced so many times; False if the child ended before."""
    deadline = time.monotonic() + 120
    last: int | None = None
    while changes and time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        now = checkpoint.stat().st_ino if checkpoint.exists() else None
        changes -= now != last
        last = now
        time.sleep(0.001)
    return True


def main(folder: Path) -> None:
    chance = random.Random(time.time_ns())  # noqa: S311 - any moment will do, and each run another
    out, kept, kills = folder / "killed", [0], 0
    while kills < KILLS:
        child = in_a_fork(out, checkpoint_seconds=0)  # after every period
        if not wait_for(child, out / "checkpoint.safetensors", chance.randint(1, 12)):
            sys.exit("the run ended before it was killed")
        for _ in range(chance.randint(0, 20_000)):
            pass  # somewhere inside a period, or inside the writing of a file
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        if (out / "checkpoint.safetensors").exists():
            kept.append(read_checkpoint(out / "checkpoint.safetensors", None)[0].iteration)
    for path in (out, folder / "whole"):
        if os.waitpid(in_a_fork(path, checkpoint_seconds=600), 0)[1]:
            sys.exit("a run that was not killed failed")
    print(json.dumps({"kills": kills, "kept": kept}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
