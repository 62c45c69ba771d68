"""How much worse than the best of the full grid is what the planner recommends?

    python benchmarks/planner_regret.py --settings 40 --first 1000

Each setting is drawn at random from its number: graph, cluster sizes, label skew inside and between
clusters, learning rate, target, and a clock that is bound by compute, by the uplink or by the
exchange. Settings 0 to 99 were used while the planner was written; the published table starts at
1000. Every schedule of the grid (tau1, tau2 in 1,2,3,5,10,20; alpha in 1,2,3,5,10; all averagers)
is simulated with the same mini-batches until it reaches the target, or 8 times the iterations of
the best possible run. The planner works with other mini-batches. Averagers that enlarge rounding
errors more than 10,000 times (finite-time on some graphs) are in neither.

regret   seconds to the target of the recommendation / of the grid's best
cost     iterations that the planner simulated / that the grid took; identical schedules (chebyshev
         with alpha 1 is paper with alpha 1) count once in the grid. Gradients for the split of
         kappa, at some ten models of the pilot, are not counted
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from softmax_lab import SoftmaxLaboratory, plain_choices, timed_place
from softmax_problem import SideBySide, SoftmaxProblem, SoftmaxSchedule, random_softmax

from sdfeel.clock import Latencies
from sdfeel.network import Network
from sdfeel.planner.candidate import Candidate
from sdfeel.planner.grid import candidates
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Objective
from sdfeel.planner.search import recommend

BOUNDS = {
    "compute": ((0.05, 0.5), (0.05, 0.5)),
    "uplink": ((5, 30), (0.1, 3)),
    "exchange": ((0.3, 3), (10, 60)),
    "all": ((1, 10), (1, 10)),
}
SHORTEST = 80  # iterations to the target at best: shorter runs need no planner
OTHER_BATCHES = 10**6
GIVE_UP = 8  # times the iterations of the run that averages everything at every iteration


@dataclass
class Setting:
    number: int
    network: Network
    graph: str
    problem: SoftmaxProblem
    skews: tuple[float, float]
    latencies: Latencies
    bound: str
    target: float
    pilot: int


def draw(number: int) -> Setting:
    """Everything about a setting follows from its number."""
    rng = np.random.default_rng((number, 99))
    servers = int(rng.integers(4, 9))
    graph = str(rng.choice(["ring", "path", "star", "full", "partial", "random"]))
    network = Network.build(graph, servers, [int(n) for n in rng.integers(2, 6, servers)])
    inside, between = (float(10**x) for x in rng.uniform(-1, 1, 2))
    problem = random_softmax(
        network, number, inside=inside, between=between, lr=float(10 ** rng.uniform(-1, 0.3)),
        spread=float(rng.uniform(0.3, 0.8)), classes=3, features=8,
    )  # fmt: skip
    bound = str(rng.choice(list(BOUNDS)))
    uplink, exchange = (float(np.exp(rng.uniform(*np.log(r)))) for r in BOUNDS[bound])
    latencies = Latencies(
        t_cmp=np.ones(network.clients), t_ct_sr=np.full(network.clients, uplink),
        t_ct_cd=np.full(network.clients, 2 * uplink), t_sr_cd=np.full(servers, uplink),
        t_sr_sr=exchange,
    )  # fmt: skip
    fraction = float(rng.uniform(0.03, 0.12))
    target, pilot = _target(problem, fraction)
    while pilot < SHORTEST:
        problem = replace(problem, lr=problem.lr / 2)
        target, pilot = _target(problem, fraction)
    return Setting(
        number, network, graph, problem, (inside, between), latencies, bound, target, pilot
    )


def _target(problem: SoftmaxProblem, fraction: float) -> tuple[float, int]:
    """The loss with `fraction` of the way to the optimum left; iterations of the best run to it."""
    W = np.zeros((problem.features, problem.classes), dtype=np.float32)
    shares = problem.network.shares.client
    for _ in range(1500):
        gradient = shares @ problem.client_gradients(W)
        W -= np.float32(4.0) * gradient.reshape(W.shape).astype(np.float32)
    best, start = (float(problem.losses(w[..., None])[0]) for w in (W, 0 * W))
    target = best + fraction * (start - best)
    models = SideBySide(
        problem, [SoftmaxSchedule(1, 1, problem.network.averager("exact").operator)]
    )
    only = np.zeros(1, dtype=np.int64)
    while models.k < 1500 and (models.step().size == 0 or models.losses(only)[0] > target):
        pass
    return target, models.k


def simulate_grid(setting: Setting, grid: list[Candidate]) -> tuple[dict[object, float], int]:
    """Iterations to the target of every schedule, and what simulating them cost."""
    unique: list[Candidate] = []
    place_of: dict[object, int] = {}
    for row in grid:
        for place, other in enumerate(unique):
            if (row.tau1, row.tau2) == (other.tau1, other.tau2) and np.allclose(
                row.averager.operator, other.averager.operator, atol=1e-6
            ):
                place_of[row.key] = place
                break
        else:
            place_of[row.key] = len(unique)
            unique.append(row)
    schedules = [SoftmaxSchedule(row.tau1, row.tau2, row.averager.operator) for row in unique]
    models = SideBySide(setting.problem, schedules)
    alive = np.arange(len(unique))
    seen: list[list[tuple[int, float]]] = [[(0, np.log(setting.problem.classes))] for _ in unique]
    cost = 0
    while len(alive) and models.k < GIVE_UP * setting.pilot:
        cost += len(alive)
        due = models.step()
        if not len(due):
            continue
        losses = models.losses(due)
        for place, loss in zip(due, losses, strict=True):
            seen[alive[place]].append((models.k, float(loss)))
        done = due[losses <= setting.target]
        if len(done):
            stay = np.setdiff1d(np.arange(len(alive)), done)
            alive = alive[stay]
            if len(alive):
                models.keep(stay)
    seconds = {}
    for row in grid:
        points = seen[place_of[row.key]]
        k = np.array([point[0] for point in points])
        curve = LossCurve(k, row.price.seconds_of(k), np.array([point[1] for point in points]))
        seconds[row.key] = curve.seconds_to(setting.target)
    return seconds, cost


def report(setting: Setting) -> tuple[float, float]:
    place = timed_place(setting.network, setting.latencies, lr=setting.problem.lr)
    grid = candidates(place, plain_choices(), prune=False)
    began = time.perf_counter()
    seconds, grid_cost = simulate_grid(setting, grid)
    middle = time.perf_counter()
    # Other mini-batches than the grid's: the planner must not race on what it is judged by.
    laboratory = SoftmaxLaboratory(replace(setting.problem, seed=setting.number + OTHER_BATCHES))
    choices = plain_choices(pace="synchronous")
    plan = recommend(place, laboratory, Objective(target=setting.target), choices=choices)
    end = time.perf_counter()
    best = min(grid, key=lambda row: seconds[row.key])
    least = seconds[best.key]
    regret = seconds[plan.choice.key] / least
    predicted = plan.ranking[0].key
    cost = laboratory.iterations / grid_cost
    print(
        f"| {setting.number} | {setting.graph}-{setting.network.servers} | "
        f"{setting.skews[0]:.2g}, {setting.skews[1]:.2g} | {setting.bound} | "
        f"{_words(best)} | {_words(plan.choice)} | {regret:.3f} | "
        f"{seconds[predicted] / least:.3f} | {cost:.2%} |",
        flush=True,
    )
    print(
        f"  grid {middle - began:.1f} s, planner {end - middle:.1f} s",
        file=sys.stderr,
    )
    return regret, cost


def _words(row: Candidate) -> str:
    return f"{row.tau1},{row.tau2},{row.alpha} {row.averager.name}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, default=40)
    parser.add_argument("--first", type=int, default=1000)
    arguments = parser.parse_args()
    print("| setting | graph | skew in, between | bound by | grid's best | planned | regret | "
          "prediction alone | cost |")  # fmt: skip
    print("| --- " * 9 + "|")
    numbers = range(arguments.first, arguments.first + arguments.settings)
    rows = [report(draw(number)) for number in numbers]
    regrets, costs = (np.array(column) for column in zip(*rows, strict=True))
    print(
        f"\nregret: median {np.median(regrets):.3f}, 90 % {np.quantile(regrets, 0.9):.3f}, worst "
        f"{regrets.max():.3f}; cost: median {np.median(costs):.2%}, worst {costs.max():.2%} "
        f"of the grid's iterations; {len(rows)} settings"
    )


if __name__ == "__main__":
    main()
