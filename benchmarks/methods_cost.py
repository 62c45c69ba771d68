"""What methods add to a run's computing: processor seconds of the fast engine beside plain SGD.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/methods_cost.py [mnist-cnn | cifar-cnn]

50 clients in a ring of ten, the paper's network, batches of ten. Processor time of all threads, so
that other programs on the machine show little; a round of plain SGD and one of the method in turn,
the smallest of several of each. Passive, because a thread of torch that waits would count as busy.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import sdfeel
from speed.jobs import Job, make_contender

ROUNDS, WARM = 20, 2
METHODS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": sdfeel.Momentum(0.9)},
    "correction": {"correction": "two-level"},
    "float16 up": {"codecs": {"up": "float16"}},
    "int8 up": {"codecs": {"up": "int8"}},
    "int4 up": {"codecs": {"up": "int4"}},
    "top-k up": {"codecs": {"up": "top-k"}},
    "int8 up and down, correction": {
        "codecs": {"up": "int8", "down": "int8"},
        "correction": "two-level",
    },
}


def seconds(network: str, tau1: int, method: dict[str, Any]) -> Iterator[float]:
    """Processor seconds of rounds: local updates, aggregations and messages."""
    job = Job("fast", model=network, samples=60, tau1=tau1, aggregate=True)
    contender = make_contender(job, averager="all-reduce", **method)
    while True:
        begin = time.process_time()
        contender.run(1)
        yield time.process_time() - begin


def main() -> None:
    network = sys.argv[1] if len(sys.argv) > 1 else "mnist-cnn"
    print(f"{'method':30}" + "".join(f"   tau1 = {tau1:<12} added" for tau1 in (2, 5, 20)))
    for name, method in METHODS.items():
        line = f"{name:30}"
        for tau1 in (2, 5, 20):
            pair = [seconds(network, tau1, own) for own in ({}, method)]
            found = [[next(rounds) for rounds in pair] for _ in range(WARM + ROUNDS)][WARM:]
            plain, spent = (min(column) for column in zip(*found, strict=True))
            line += f"   {1e3 * plain:6.1f} {1e3 * spent:7.1f} ms {spent / plain - 1:+5.0%}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
