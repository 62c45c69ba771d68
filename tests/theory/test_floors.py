"""Floors of schedules on quadratics, exact; and what the planner's prediction makes of them."""

from itertools import islice

import numpy as np
import pytest
from softmax_lab import plain_choices, timed_place
from uneven import UnevenQuadratic, random_uneven
from worlds import Weights, recursion

from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Latencies
from sdfeel.network import Network
from sdfeel.planner.grid import candidates
from sdfeel.planner.pilot import PathPoint, PilotPath
from sdfeel.planner.prediction import calibrate
from sdfeel.planner.price import LossCurve
from sdfeel.theory.split import kappa_split

LEAST = 0.3


def train(problem, row, lr, steps, points=()):
    """Algorithm 1 step by step, which `floor` does not know of: the curve, and kappa at points."""
    shares = problem.network.shares
    weights = Weights(problem.network, shares.samples)
    schedule = Schedule(row.tau1, row.tau2, 1)
    models = recursion(
        np.repeat(problem.start[:, None], problem.network.clients, axis=1),
        lambda _, W: problem.client_gradients(W.T).T,
        lambda k: weights.T(k, schedule, row.averager.operator),
        lr,
    )
    seen, measured = [(0, problem.loss(problem.start))], []
    for k, W in enumerate(islice(models, steps), 1):
        mean = W @ shares.client
        if k % row.tau1 == 0:
            seen.append((k, problem.loss(mean)))
        if k in points:
            split = kappa_split(problem.client_gradients(mean), shares)
            measured.append(PathPoint(problem.loss(mean), split.inside**0.5, split.between**0.5))
    iterations = np.array([k for k, _ in seen])
    losses = np.array([loss for _, loss in seen])
    return LossCurve(iterations, row.price.seconds_of(iterations), losses), tuple(measured)


def setting(number):
    rng = np.random.default_rng(number)
    network = Network.build("ring", int(rng.integers(3, 7)), 3)
    skews = {name: float(10 ** rng.uniform(-0.5, 0.5)) for name in ("inside", "between")}
    problem = random_uneven(network, rng, **skews, least=LEAST)
    each, servers = np.ones(network.clients), np.ones(network.servers)
    times = Latencies(t_cmp=each, t_ct_sr=each, t_ct_cd=each, t_sr_cd=servers, t_sr_sr=1.0)
    choices = plain_choices(tau1=(1, 3, 10, 20), tau2=(1, 5, 20), alpha=1, averager="all-reduce")
    grid = candidates(timed_place(network, times), choices)
    return problem, grid, float(rng.choice([0.02, 0.05, 0.1]))


@pytest.mark.parametrize("key", [(3, 1), (10, 5), (1, 20)])
def test_a_run_comes_to_rest_at_its_floor(key):
    problem, grid, lr = setting(1)
    row = next(row for row in grid if (row.tau1, row.tau2) == key)
    curve, _ = train(problem, row, lr, 6000)
    floor = problem.floor(row.tau1, row.tau2, row.averager.operator, lr)
    assert curve.losses[-1] == pytest.approx(floor, rel=1e-9)
    assert floor > LEAST


def test_with_one_curvature_for_all_nothing_stops_short():
    problem, grid, lr = setting(2)
    same = np.repeat(problem.curvatures[:1], len(problem.curvatures), axis=0)
    even = UnevenQuadratic(problem.network, same, problem.centres, problem.start, LEAST)
    for row in grid:
        floor = even.floor(row.tau1, row.tau2, row.averager.operator, lr)
        assert floor == pytest.approx(LEAST, abs=1e-9)


def test_the_prediction_learns_floors_from_runs_that_stall():
    """From a pilot and the three corners; judged by schedules that were not among the runs, too.

    Excess loss at the floor, predicted over exact: the middle of all within a factor of two. A
    prediction that only slows down, as it did before, expects the pilot's own loss of each.
    """
    off, slowed = [], []
    for number in (1, 5, 6, 7):
        problem, grid, lr = setting(number)
        length = int(15 / lr)
        points = [int(k) for k in np.geomspace(5, length, 9)]
        curve, measured = train(problem, grid[0], lr, length, points)
        path = PilotPath(curve, measured, lr)
        corners = [row for row in grid if (row.tau1, row.tau2) in {(20, 1), (1, 20), (20, 20)}]
        for row in corners:
            row.curve, _ = train(problem, row, lr, 2 * length)
        losses, needed = calibrate(path, corners).needed(grid)
        for row, iterations in zip(grid, needed, strict=True):
            exact = problem.floor(row.tau1, row.tau2, row.averager.operator, lr)
            if exact > 1.02 * losses[-1]:
                reached = losses[np.isfinite(iterations)][-1]
                off.append(np.log((reached - LEAST) / (exact - LEAST)))
                slowed.append(np.log((losses[-1] - LEAST) / (exact - LEAST)))
    assert len(off) > 15
    assert np.median(np.abs(off)) < np.log(2)
    assert np.median(np.abs(slowed)) > np.log(50)
