"""How fast the fast engine is by turns, beside rounds: `python benchmarks/pace.py`.

The paper's CNN on random images, by the profiles `paper` (rounds) and `paper-h10` (turns). Client
steps a second of training and aggregation; the two in turn, the best of some tries each. And steps
for a second of the processor, all threads together, which other programs on the machine disturb
less: OMP_WAIT_POLICY=PASSIVE, as a thread that waits would count as busy.
"""

from __future__ import annotations

import sys
import time

from sdfeel.algorithm.schedule import Schedule
from speed.jobs import Job, simulation_of

PROFILES = {"synchronous": "paper", "asynchronous": "paper-h10"}
TRIES = 3


def compare(clients: int, servers: int, steps: int) -> dict[str, tuple[float, float]]:
    """Client steps a second by pace: of the clock on the wall, and of the processor."""
    job = Job("fast", clients=clients, servers=servers, samples=40)
    speeds = dict.fromkeys(PROFILES, (0.0, 0.0))
    for _ in range(TRIES):
        for pace, best in tuple(speeds.items()):
            simulation = simulation_of(
                job,
                steps=steps,
                schedule=Schedule(job.tau1, 1, 1),
                engine="fast",
                pace=pace,
                profile=PROFILES[pace],
                evaluate_every=10**6,
                train_samples=10,
            )
            engine, begin = simulation.engine().engine, time.process_time()
            run = simulation.run(engine)
            busy = time.process_time() - begin
            spent = run.phases["local updates"] + run.phases["aggregation"]
            found = run.client_steps / spent, run.client_steps / busy
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
