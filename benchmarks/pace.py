"""How fast the fast engine is by turns, beside rounds: `python benchmarks/pace.py`.

The paper's CNN on random images, by the profiles `paper` (rounds) and `paper-h10` (turns). Client
steps a second of training and aggregation; the two in turn, the best of some tries each. And steps
for a second of the processor, all threads together, which other programs on the machine disturb
less: OMP_WAIT_POLICY=PASSIVE, as a thread that waits would count as busy.
"""

from __future__ import annotations

import sys
import time

import torch

from sdfeel.algorithm.schedule import Schedule
from sdfeel.data import ClientData
from sdfeel.models import build
from sdfeel.network import Network
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

__all__ = ["compare"]

SAMPLES = 40  # of each client
TRIES = 3


def compare(clients: int, servers: int, steps: int) -> dict[str, tuple[float, float]]:
    """Client steps a second by pace: of the clock on the wall, and of the processor."""
    torch.manual_seed(0)
    inputs = torch.randn(clients * SAMPLES, 1, 28, 28)
    targets = torch.randint(10, (clients * SAMPLES,))
    data = ClientData(inputs, targets, torch.arange(0, clients * SAMPLES + 1, SAMPLES).numpy())
    model = build("mnist-cnn", (1, 28, 28), 10, 0)
    speeds = {"synchronous": (0.0, 0.0), "asynchronous": (0.0, 0.0)}
    for _ in range(TRIES):
        for pace, best in tuple(speeds.items()):
            own = Settings.of(
                {
                    "steps": steps,
                    "schedule": Schedule(5, 1, 1),
                    "engine": "fast",
                    "pace": pace,
                    "profile": "paper" if pace == "synchronous" else "paper-h10",
                    "evaluate_every": 10**6,
                    "train_samples": 10,
                }
            )
            network = Network.ring(servers, clients // servers)
            simulation = Simulation.assemble(model, data, own, network=network)
            engine, begin = simulation.engine().engine, time.process_time()
            outcome = simulation.run(engine)
            busy = time.process_time() - begin
            spent = outcome.phases["local updates"] + outcome.phases["aggregation"]
            found = outcome.client_steps / spent, outcome.client_steps / busy
            speeds[pace] = max(best[0], found[0]), max(best[1], found[1])
    return speeds


def main() -> None:
    for clients, servers, steps in ((50, 10, 200), (1000, 100, 20)):
        found = compare(clients, servers, steps)
        for place, clock in enumerate(("the wall", "the processor")):
            told = ", ".join(f"{pace} {speed[place]:,.0f}" for pace, speed in found.items())
            ratio = found["asynchronous"][place] / found["synchronous"][place]
            text = f"{clients} clients: {told} client steps a second of {clock}; {ratio:.0%}\n"
            sys.stdout.write(text)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
