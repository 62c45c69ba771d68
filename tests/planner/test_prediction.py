"""The pilot's path: what is read off it, and how it is continued."""

import json
from pathlib import Path as File

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from softmax_lab import plain_choices

from sdfeel.clock import load_profile
from sdfeel.network import Network
from sdfeel.planner.candidate import Place
from sdfeel.planner.grid import candidates
from sdfeel.planner.pilot import PathPoint, PilotPath
from sdfeel.planner.prediction import calibrate
from sdfeel.planner.price import LossCurve
from sdfeel.planner.race import Objective
from sdfeel.simulation.settings import Settings

FLAT = (PathPoint(1.0, 2.0, 1.0), PathPoint(0.5, 2.0, 1.0))


def path(loss, end, points=FLAT, lr=0.01):
    iterations = np.arange(0, end + 1)
    return PilotPath(LossCurve(iterations, iterations * 1.0, loss(iterations)), points, lr)


def test_the_descent_is_the_gradient_where_nothing_swings():
    """Gradient descent on x^2/2: eta ||grad F||^2 is what the loss falls by, to first order."""
    lr = 1e-3
    made = path(lambda k: (1 - lr) ** (2.0 * k) / 2, 500, lr=lr)
    at = np.array([10.0, 100.0, 300.0])
    assert made.descent(at) == pytest.approx((1 - lr) ** at, rel=0.02)


def test_swinging_to_and_fro_is_no_descent():
    """Evaluations that jump by more than the loss falls: only new lows count."""
    still = path(lambda k: 1 / (1 + 0.01 * k), 1000)
    swings = path(lambda k: 1 / (1 + 0.01 * k) + 0.05 * (k % 2), 1000)
    at = np.array([50.0, 200.0, 600.0])
    assert swings.descent(at) == pytest.approx(still.descent(at), rel=0.05)


@given(st.floats(0.3, 1.5), st.floats(10, 500), st.floats(0.5, 3))
def test_a_loss_whose_odds_are_a_power_of_k_is_continued_exactly(power, half, start):
    made = path(lambda k: start / (1 + (k / half) ** power), 1000)
    losses, iterations = made.continued
    assert losses == pytest.approx(start / (1 + (iterations / half) ** power), rel=1e-2)
    assert np.all(np.diff(losses) < 0)
    assert np.all(losses > 0)


@pytest.mark.parametrize(
    ("last", "power"), [(2.0, 0.0), (3.0, 0.0), (2 / 4**0.25, 0.25), (0.1, 0.5)]
)
def test_kappa_goes_on_as_it_fell_but_no_faster_than_the_root_of_the_loss(last, power):
    """Where it rose it stays: a loss that is fitted by all clients has no kappa left at all."""
    made = path(lambda k: 4.0 ** -(k / 500), 1000, lr=1.0)  # a quarter in the second half
    half, end = made.halfway
    points = (PathPoint(1.0, 2.0, 2.0), PathPoint(half, 2.0, 2.0), PathPoint(end, last, last))
    made = path(lambda k: 4.0 ** -(k / 500), 1000, points, lr=1.0)
    levels = made.continued
    losses, iterations = ((part[1:] + part[:-1]) / 2 for part in levels)
    kappa = made.along(levels)[0] * made.descent(iterations)
    below = losses < end
    assert kappa[below] == pytest.approx(last * (losses[below] / end) ** power, rel=0.02)


# What the planner saw on CIFAR-10: benchmarks/figure_4_evidence.py made the file.


@pytest.fixture(scope="module")
def figure_4():
    seen = json.loads((File(__file__).parent / "figure_4.json").read_text())
    network = Network.ring(10, 5).with_samples(seen["samples"])
    settings = Settings.of({"lr": seen["lr"]})
    place = Place(settings, network, load_profile("paper"), seen["parameters"])
    choices = plain_choices(tau1=(1, 3, 20), tau2=1, alpha=1, averager="paper")
    grid = sorted(candidates(place, choices), key=lambda row: row.tau1)

    def curve(of, row):
        iterations = np.array(of["iterations"])
        return LossCurve(iterations, row.price.seconds_of(iterations), np.array(of["losses"]))

    points = tuple(PathPoint(*values) for values in seen["points"])
    pilot = PilotPath(curve(seen["pilot"], grid[0]), points, seen["lr"])
    probe = next(row for row in grid if row.tau1 == seen["probe"]["tau1"])
    probe.curve = curve(seen["probe"], probe)
    predictor = calibrate(pilot, [probe])
    for row, predicted in zip(grid, predictor.curves(grid, beyond=True), strict=True):
        row.predicted = predicted
    return predictor, grid


def _overtaken():
    """Seconds after which tau1 = 3 has the lower training loss for good, in training."""
    folder = File(__file__).parents[2] / "docs" / "reproduction" / "fig4-hour"
    rows = {
        tau1: np.loadtxt(folder / f"tau1-{tau1}.csv", delimiter=",", skiprows=1)[:, 1:3].T
        for tau1 in (3, 20)
    }
    seconds = np.arange(200.0, min(curve[0, -1] for curve in rows.values()))
    ahead = np.interp(seconds, *rows[20]) < np.interp(seconds, *rows[3])
    return float(seconds[np.flatnonzero(ahead)[-1]])


def test_figure_4_for_the_papers_time_three_is_first_and_by_iterations_one(figure_4):
    """On the paper's data, for its 250 minutes: its own answers. For a minute it is 20.

    In training (docs/reproduction) 3 overtakes 20 after 52 minutes, because 20 all but stops at
    0.64. From a pilot of 2,000 iterations the prediction is not that exact: it must say 20 for two
    thirds of the time, and 3 for half as much again. A model without floors said 90 minutes.
    """
    predictor, grid = figure_4

    def order(budget):
        ranking = sorted(grid, key=Objective(budget=budget).predicted)
        return [row.tau1 for row in ranking]

    overtaken = _overtaken()
    assert overtaken == pytest.approx(52 * 60, rel=0.02)
    assert order(250 * 60.0)[0] == 3
    assert order(1.5 * overtaken)[0] == 3
    assert order(overtaken / 1.5) == [20, 3, 1]
    assert order(60.0) == [20, 3, 1]
    promised = [Objective(budget=250 * 60.0).predicted(row) for row in grid]
    assert promised == pytest.approx([0.326, 0.266, 0.332], rel=0.02)  # as docs/planner.md has them
    _, needed = predictor.needed(grid, beyond=True)
    assert np.all(needed[0, 1:] < needed[1, 1:])
    assert np.all((needed[1, 1:] < needed[2, 1:]) | np.isinf(needed[1, 1:]))


def test_figure_4_the_prediction_fits_what_was_seen(figure_4):
    """The gradient's own norm in place of the descent gave 18 % here: it swings."""
    assert figure_4[0].numbers.error < 0.05
