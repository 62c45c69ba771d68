from __future__ import annotations

import math
from contextlib import closing

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import RunError, Schedule
from sdfeel.algorithm.methods.optimizers import Momentum
from sdfeel.records.checkpoints import Checkpoint
from sdfeel.simulation.listening import Keeper, Progress
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


def train(problem: Problem, **options: object) -> sdfeel.Result:
    settings = {
        "network": problem.network,
        "schedule": Schedule(5, 2, 2),
        "steps": 23,
        "lr": 0.1,
        "batch_size": 4,
        "seed": 3,
        "participation": 0.7,
        "evaluate_every": 4,
        "engine": "vectorised",
        "profile": "paper",
    }
    return sdfeel.train(problem.model, problem.datasets, **{**settings, **options})


def with_dropout(problem: Problem) -> Problem:
    torch.manual_seed(0)
    problem.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    return problem


def test_a_run_is_looked_at_where_upload_periods_end(small: Problem) -> None:
    """Nowhere else: how fast the machine is does not show."""
    seen: list[Progress] = []
    train(small, on_progress=seen.append)
    assert [progress.iteration for progress in seen] == [5, 10, 15, 20, 23]


class Patient(Keeper):
    """Wants to stop at its n-th look; then again never."""

    keeps, rescue = True, ""

    def __init__(self, looks: int) -> None:
        self.left, self.checkpoint = looks, None

    def stop(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def due(self) -> bool:
        return False

    def save(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def saw(self, iteration: int, servers: torch.Tensor, numbers) -> None:
        pass


@pytest.mark.parametrize("engine", ["reference", "vectorised", "fast"])
@pytest.mark.parametrize("looks", [1, 2, 3, 7, 20, 61])
def test_training_that_is_interrupted_is_dropped(small: Problem, engine: str, looks: int) -> None:
    """Wherever it is stopped, between two steps or clients: what was saved goes on bit for bit."""
    simulation = Simulation.assemble(
        small.model,
        small.datasets,
        Settings.of({"schedule": Schedule(5, 2, 2), "optimizer": Momentum(0.9, memory="keep"),
                     "steps": 23, "lr": 0.1, "batch_size": 4, "participation": 0.7}),
        network=small.network,
    )  # fmt: skip
    keeper = Patient(looks)
    with closing(simulation.engine(engine).engine) as own:
        whole = simulation.run(own, keeper=Patient(10**9))
        part = simulation.run(own, keeper=keeper)
        assert part.is_interrupted == (part.k < 23)
        assert part.k % 5 == 0 or part.k == 23
        again = simulation.run(own, start=keeper.checkpoint)
    assert torch.equal(again.state.models, whole.state.models)
    assert torch.equal(again.state.mean(), whole.state.mean())


def test_random_parts_of_a_model_are_a_function_of_the_seed(small: Problem) -> None:
    """Dropout: the same seed the same run, whatever torch's own generator did before."""
    problem = with_dropout(small)
    torch.manual_seed(1)
    one = train(problem)
    before = torch.random.get_rng_state()
    two = train(problem)
    assert torch.equal(before, torch.random.get_rng_state())  # and it is left as it was
    np.testing.assert_array_equal(vector(one.model), vector(two.model))
    assert not np.array_equal(vector(one.model), vector(train(problem, seed=4).model))


def test_rows_of_the_history(small: Problem) -> None:
    history = train(small).history
    # The first ends of periods at or after 4, 8, 12, 16 and 20, and the end of the run.
    assert history["iteration"].tolist() == [0, 5, 10, 15, 20, 23]
    assert history["iteration"].dtype == int
    assert history["seconds"].is_monotonic_increasing
    assert history["seconds"].iloc[0] == 0
    assert math.isnan(history["batch_loss"].iloc[0])
    assert history.drop(columns="batch_loss").notna().all(axis=None)


def test_batch_loss_is_the_mean_over_clients_and_iterations_since_the_last_row(
    small: Problem,
) -> None:
    """With full batches and a rate of almost 0 it is the plain mean of the clients' losses."""
    result = train(small, batch_size=100, lr=1e-12, participation=1.0)
    losses = []
    for x, y in zip(small.inputs, small.targets, strict=True):
        with torch.no_grad():
            outputs = small.model(torch.from_numpy(x))
            losses.append(float(nn.functional.cross_entropy(outputs, torch.from_numpy(y))))
    for value in result.history["batch_loss"][1:]:
        assert value == pytest.approx(np.mean(losses), rel=1e-5)


def test_until_ends_at_the_first_aggregation_at_or_after_that_time(small: Problem) -> None:
    schedule = Schedule(2, 1, 1)
    long = train(small, schedule=schedule, steps=40, evaluate_every=2, participation=1.0)
    times = long.history["seconds"].to_numpy()
    until = (times[5] + times[6]) / 2
    short = train(
        small, schedule=schedule, steps=40, evaluate_every=2, participation=1.0, until=until
    )
    assert short.iterations == 12
    assert short.seconds == times[6] >= until
    pd.testing.assert_frame_equal(short.history, long.history[:7], check_exact=True)
    exactly = train(
        small, schedule=schedule, steps=40, evaluate_every=2, participation=1.0, until=times[3]
    )
    assert exactly.iterations == 6


def test_until_ends_a_run_at_the_end_of_a_period(small: Problem) -> None:
    result = train(small, until=0.02, schedule=Schedule(5, 2, 2))
    assert result.iterations == 5


def test_progress_goes_from_0_to_1(small: Problem) -> None:
    seen: list[Progress] = []
    result = train(small, on_progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert seen[-1].iteration == seen[-1].iterations == 23
    assert seen[-1].client_steps == result.client_steps > 0
    assert seen[-1].row == result.history.iloc[-1].to_dict()
    assert seen[-1].client_steps_per_second > 0
    by_clock: list[Progress] = []
    train(small, on_progress=by_clock.append, until=0.5, steps=10**6)
    assert by_clock[-1].fraction == 1.0


def test_absent_clients_do_not_count_as_work(small: Problem) -> None:
    everyone = train(small, participation=1.0)
    assert everyone.client_steps == 6 * 23
    assert train(small, participation=0.3).client_steps < 6 * 23
    assert set(everyone.phases) >= {"local updates", "aggregation", "evaluation"}


# A loss that is no longer a number.


def poisoned(client: int, row: int) -> Problem:
    problem = classification((30, 30, 30, 30), [[0, 1], [2, 3]], "path")
    problem.inputs[client][row] = math.nan
    return problem


@pytest.mark.parametrize("engine", ["reference", "vectorised", "fast"])
def test_a_loss_that_is_not_finite_names_iteration_and_client(engine: str) -> None:
    problem = poisoned(client=2, row=7)
    from sdfeel.algorithm.randomness import draw_batches

    drawn = draw_batches(3, np.array([2]), np.array([30]), np.arange(1, 200), 4)[0]
    first = int(np.flatnonzero((drawn == 7).any(axis=1))[0]) + 1
    assert first > 1  # the run begins well
    with pytest.raises(RunError, match=rf"client 2 became nan at iteration {first}\."):
        train(problem, engine=engine, participation=1.0, steps=200)


def test_of_several_the_first_is_named() -> None:
    problem = poisoned(client=3, row=0)
    problem.inputs[1][:] = math.inf
    with pytest.raises(RunError, match=r"client 1 became nan at iteration 1\."):
        train(problem, participation=1.0)


def test_a_model_that_overflows_in_the_last_step_is_no_result(small: Problem) -> None:
    """No further loss would tell: the end of the run must look at the models themselves."""
    small.inputs = [x * np.float32(1e6) for x in small.inputs]
    for tau1 in (1, 5):  # the end of a period, and of a shorter one
        with pytest.raises(RunError, match=r"no longer finite at iteration 1\."):
            train(small, lr=1e37, steps=1, schedule=Schedule(tau1, 1, 1), participation=1.0)


@pytest.mark.parametrize("first", [3, 4, 5, 6, 9, 10, 11])  # around periods, of 5 iterations
def test_a_run_that_is_made_longer_has_the_rows_of_a_long_one(small, tmp_path, first: int) -> None:
    """A run is evaluated where it ends, also between two evaluations; a longer one is not there."""
    train(small, steps=first, out=tmp_path)
    again = train(small, steps=first, out=tmp_path, resume=True)
    assert int(again.history["iteration"].iloc[-1]) == first
    longer = train(small, steps=18, out=tmp_path, resume=True, evaluate_every=4)
    whole = train(small, steps=18)
    pd.testing.assert_frame_equal(longer.history, whole.history, check_exact=True)


def test_rows_of_another_interval_stay(small: Problem, tmp_path) -> None:
    one = {"schedule": Schedule(1, 2, 2)}
    train(small, steps=6, evaluate_every=3, out=tmp_path, **one)
    longer = train(small, steps=8, evaluate_every=4, out=tmp_path, resume=True, **one)
    assert list(longer.history["iteration"]) == [0, 3, 6, 8]
