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

import torch
from torch.utils.data import TensorDataset

import sdfeel
from sdfeel.models import build
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation
from sdfeel.simulation.state import State

ROUNDS, WARM = 20, 2
SHAPES = {"mnist-cnn": (1, 28, 28), "cifar-cnn": (3, 32, 32)}
METHODS: dict[str, dict[str, object]] = {
    "momentum": {"local": sdfeel.Momentum(0.9)},
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


def simulation(network: str, tau1: int, method: dict[str, object]) -> Simulation:
    generator, shape = torch.Generator().manual_seed(0), SHAPES[network]
    data = [
        TensorDataset(
            torch.randn(60, *shape, generator=generator),
            torch.randint(0, 10, (60,), generator=generator),
        )
        for _ in range(50)
    ]
    schedule = sdfeel.Schedule(tau1, 1, 1)
    given = {"steps": 1, "schedule": schedule, "averager": "all-reduce", **method}
    ring = sdfeel.Network.ring(10, 5)
    return Simulation.assemble(build(network, shape, 10, 0), data, Settings.of(given), network=ring)


def seconds(own: Simulation) -> Iterator[float]:
    """Processor seconds of rounds: local updates, aggregations and messages."""
    state = State(own.problem, own.algorithm, own.start, own.ranks, own.placement)
    engine = own.engine("fast").engine
    k = 1
    while True:
        event = own.algorithm.pace.next(k, own.algorithm)
        begin = time.process_time()
        state.local_updates(engine, event, event.first, event.last)
        if event.mixing is not None:
            state.exchange(event.mixing)
        state.broadcast()
        yield time.process_time() - begin
        k = event.last + 1


def main() -> None:
    network = sys.argv[1] if len(sys.argv) > 1 else "mnist-cnn"
    print(f"{'method':30}" + "".join(f"   tau1 = {tau1:<12} added" for tau1 in (2, 5, 20)))
    for name, method in METHODS.items():
        line = f"{name:30}"
        for tau1 in (2, 5, 20):
            pair = [seconds(simulation(network, tau1, own)) for own in ({}, method)]
            found = [[next(rounds) for rounds in pair] for _ in range(WARM + ROUNDS)][WARM:]
            plain, spent = (min(column) for column in zip(*found, strict=True))
            line += f"   {1e3 * plain:6.1f} {1e3 * spent:7.1f} ms {spent / plain - 1:+5.0%}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
