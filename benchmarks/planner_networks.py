"""How much worse than the best of a coarse grid is the planner's choice, on networks?

    python benchmarks/planner_networks.py --settings 12 --first 1000

As benchmarks/planner_regret.py, with a multilayer perceptron (64-16-8) on Gaussian classes with
label skew, trained by the fast engine, and with codecs and correction in the grid. Each setting is
drawn from its number: graph, skews, learning rate, target, what sending costs, and whether a way
down is counted. Every point of the coarse grid (tau1 in 1, 5, 20; tau2 in 1, 5; all-reduce; float32
or int8 up, and down where it is counted; no correction or two-level) is trained until it reaches
the target, or for 4 times the iterations of the run that averages everything at each. The planner
chooses from the same grid, with other mini-batches (another seed).

regret   seconds to the target of the recommendation / of the grid's best
cost     iterations that the planner trained / that the coarse grid took; and / that all candidates
         of `sdfeel plan` would take if each took what the mean one of the coarse grid did
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from sdfeel.clock import load_profile
from sdfeel.network import Network
from sdfeel.planner.candidate import Candidate
from sdfeel.planner.grid import candidates, choices_of
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.race import Effort, Objective
from sdfeel.planner.search import recommend
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

CLASSES, INPUTS = 8, 64
GIVE_UP = 4
OTHER_BATCHES = 10**6
EFFORT = Effort(pilot=1500, racers=6, races=3)
COARSE = choices_of(
    {
        "tau1": (1, 5, 20),
        "tau2": (1, 5),
        "alpha": 1,
        "averager": "all-reduce",
        "codecs.up": ("float32", "int8"),
        "codecs.between": "float32",
    }
)


def draw(number: int) -> tuple[Simulation, float]:
    """The setting, and the part of the start's loss that is the target."""
    rng = np.random.default_rng((number, 7))
    servers = int(rng.integers(3, 6))
    graph = str(rng.choice(["ring", "path", "star", "full"]))
    network = Network.build(graph, servers, int(rng.integers(2, 5)))
    inside, between = (float(10**x) for x in rng.uniform(-1, 1, 2))
    profile = load_profile(str(rng.choice(["paper", "paper-downlink"])))
    speed = float(10 ** rng.uniform(-2.5, 0))  # how dear sending is beside computing
    profile = replace(
        profile,
        flops_per_step=profile.cpu * 0.01,
        client_server=speed * 1e6,
        server_server=float(10 ** rng.uniform(0, 1)) * speed * 1e6,
        server_client=speed * 1e6 if profile.server_client else None,
    )
    torch.manual_seed(number)
    model = nn.Sequential(nn.Linear(INPUTS, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    settings = Settings.of(
        {
            "lr": float(10 ** rng.uniform(-1.7, -0.7)),
            "batch_size": 10,
            "seed": number,
            "engine": "fast",
            "profile": profile,
        }
    )
    data = _data(rng, network, inside, between)
    simulation = Simulation.assemble(model, data, settings, network=network)
    return simulation, float(rng.uniform(0.15, 0.4))


def _data(rng: np.random.Generator, network: Network, inside: float, between: float) -> list:
    centres = rng.normal(size=(CLASSES, INPUTS)) * 0.35
    data = []
    clusters = rng.dirichlet(np.full(CLASSES, between), network.servers)
    for server in network.clusters.server_of:
        share = rng.dirichlet(inside * CLASSES * clusters[server] + 1e-3)
        labels = rng.choice(CLASSES, size=100, p=share)
        inputs = centres[labels] + rng.normal(size=(100, INPUTS))
        data.append((torch.from_numpy(inputs).float(), torch.from_numpy(labels)))
    return data


def report(number: int) -> tuple[float, float, float]:
    simulation, part = draw(number)
    laboratory = TrainingLaboratory(simulation)
    place = laboratory.place
    is_counted = place.profile.server_client is not None
    choices = {**COARSE, "codecs.down": ("float32", "int8") if is_counted else ("float32",)}
    grid, every = candidates(place, choices, prune=False), candidates(place)
    began = time.perf_counter()
    target, pilot = _target(laboratory, grid, part)
    seconds, taken = {}, 0
    for row in grid:
        for times in (1.2, 2, GIVE_UP):
            laboratory.advance(row, int(times * pilot))
            if row.curve.best <= target:
                break
        taken += int(row.curve.iterations[-1])
        seconds[row.key] = row.curve.seconds_to(target)
    middle = time.perf_counter()
    problem = replace(simulation.problem, seed=number + OTHER_BATCHES)
    other = TrainingLaboratory(replace(simulation, problem=problem))
    plan = recommend(place, other, Objective(target=target), choices=choices, effort=EFFORT)
    best = min(grid, key=lambda row: seconds[row.key])
    least, spent = seconds[best.key], plan.report["evidence"]["iterations_spent"]
    regret = seconds[plan.choice.key] / least
    cost, whole = spent / taken, spent / (taken / len(grid) * len(every))
    print(
        f"| {number} | {place.network.servers} x {place.network.clients} | "
        f"{'counted' if is_counted else 'free'} | {target:.2f} | {_words(best)} | "
        f"{_words(plan.choice)} | {regret:.3f} | {seconds[plan.ranking[0].key] / least:.3f} | "
        f"{cost:.0%} | {whole:.2%} |",
        flush=True,
    )
    took = time.perf_counter() - middle
    print(f"  grid {middle - began:.1f} s, planner {took:.1f} s, {len(every)}", file=sys.stderr)
    return regret, cost, whole


def _target(
    laboratory: TrainingLaboratory, grid: list[Candidate], part: float
) -> tuple[float, int]:
    """A loss on the way of 400 iterations with everything averaged, and how many it takes."""
    first = next(row for row in grid if (row.tau1, row.tau2) == (1, 1) and row.is_plain)
    laboratory.advance(first, 400)
    start, end = float(first.curve.losses[0]), first.curve.best
    target = end + part * (start - end) * 0.5
    return target, int(first.curve.iterations_to(target)) + 1


def _words(row: Candidate) -> str:
    methods = f", {row.methods}" if row.methods else ""
    return f"{row.tau1},{row.tau2} {row.averager.name}{methods}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=12)
    parser.add_argument("--first", type=int, default=1000)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| setting | servers x clients | downlink | target | grid's best | planned | regret | "
          "prediction alone | cost of the coarse grid | of all candidates |")  # fmt: skip
    print("| --- " * 10 + "|")
    numbers = range(arguments.first, arguments.first + arguments.settings)
    rows = [report(number) for number in numbers]
    regrets, costs, wholes = (np.array(column) for column in zip(*rows, strict=True))
    print(
        f"\nregret: median {np.median(regrets):.3f}, worst {regrets.max():.3f}; cost: median "
        f"{np.median(costs):.0%} of the coarse grid's iterations, median {np.median(wholes):.2%} "
        f"and worst {wholes.max():.2%} of all candidates'; {len(rows)} settings"
    )


if __name__ == "__main__":
    main()
