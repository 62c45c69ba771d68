"""What torch's waiting threads cost an engine, and what `free_cores` gives back.

    python benchmarks/idle_cores.py [fast | vectorised | loop] [a model of the benchmark]

Client steps a second as in a Python program, in processes of their own and in turn:
waiting  its threads go on looking for work, as OpenMP has them do
freed    the same with `free_cores`, as the engines call it
asleep   OMP_WAIT_POLICY=PASSIVE, as on the command line
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

TURNS = 5
SECONDS = 1.0
VARIANTS = ("waiting", "freed", "asleep")


def one(variant: str, engine: str, model: str) -> float:
    """Client steps a second, after a warm-up, in this process."""
    from sdfeel.engines import idle_cores
    from speed.jobs import Job, make_contender
    from speed.measuring import cores

    if variant == "waiting":
        idle_cores._runtimes = list
    own = make_contender(Job(engine, cores(), model, aggregate=True))
    own.run(3)
    done, begin = 0.0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        done += own.run(1)[0]
    return done / (time.perf_counter() - begin)


def started(variant: str, engine: str, model: str) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    if variant == "asleep":
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    command = [sys.executable, __file__, engine, model, variant]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    engine, model, *variant = [*sys.argv[1:], *("fast", "mlp")[len(sys.argv) - 1 :]]
    if variant:
        print(one(variant[0], engine, model))
        return
    found = [{name: started(name, engine, model) for name in VARIANTS} for _ in range(TURNS)]
    for name in VARIANTS:
        speeds, ratios = zip(
            *[(turn[name], turn[name] / turn["asleep"]) for turn in found], strict=True
        )
        print(
            f"{name:8} {statistics.median(speeds):10,.0f} client steps a second, "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) of asleep"
        )


if __name__ == "__main__":
    main()
