"""What methods add to a run's computing: processor seconds of the fast engine beside plain SGD.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/methods_cost.py

50 clients in a ring of ten, the paper's MNIST network, batches of ten. Processor time of all
threads, so that other programs on the machine show little; the smallest of several rounds. Passive,
because a thread of torch that waits would count as busy.
"""

from __future__ import annotations

import time

import torch
from torch.utils.data import TensorDataset

import sdfeel
from sdfeel.models import build
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation
from sdfeel.simulation.state import State

ROUNDS, WARM = 20, 2
METHODS: dict[str, dict[str, object]] = {
    "sgd": {},
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


def simulation(tau1: int, method: dict[str, object]) -> Simulation:
    generator = torch.Generator().manual_seed(0)
    data = [
        TensorDataset(
            torch.randn(60, 1, 28, 28, generator=generator),
            torch.randint(0, 10, (60,), generator=generator),
        )
        for _ in range(50)
    ]
    schedule = sdfeel.Schedule(tau1, 1, 1)
    given = {"steps": 1, "schedule": schedule, "averager": "all-reduce", **method}
    network = sdfeel.Network.ring(10, 5)
    return Simulation.assemble(
        build("mnist-cnn", (1, 28, 28), 10, 0), data, Settings.of(given), network=network
    )


def seconds(own: Simulation) -> float:
    """Processor seconds of a round: local updates, aggregations and messages."""
    state = State(own.problem, own.algorithm, own.start, own.ranks, own.placement)
    engine = own.engine("fast").engine
    found, k = [], 1
    for _ in range(WARM + ROUNDS):
        event = own.algorithm.pace.next(k, own.algorithm)
        begin = time.process_time()
        state.local_updates(engine, event, event.first, event.last)
        if event.mixing is not None:
            state.exchange(event.mixing)
        state.broadcast()
        found.append(time.process_time() - begin)
        k = event.last + 1
    engine.close()
    return min(found[WARM:])


def main() -> None:
    print(f"{'method':30}" + "".join(f"   tau1 = {tau1:<3} added" for tau1 in (2, 5, 20)))
    plain: dict[int, float] = {}
    for name, method in METHODS.items():
        line = f"{name:30}"
        for tau1 in (2, 5, 20):
            spent = seconds(simulation(tau1, method))
            base = plain.setdefault(tau1, spent)
            line += f"   {1e3 * spent:6.1f} ms {spent / base - 1:+5.0%}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
