from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from worlds import Problem, vector

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.data import ClientData
from sdfeel.engines import choose
from sdfeel.engines.choose import ENGINES, TRIAL_SECONDS, TRIAL_STEPS, _trial
from sdfeel.engines.problem import make_problem

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


def train(small: Problem, model: nn.Module | None = None, **options: object) -> sdfeel.Result:
    return sdfeel.train(
        model or small.model,
        small.datasets,
        network=small.network,
        schedule=Schedule(2, 2, 1),
        lr=0.1,
        **{"steps": 8, **options},
    )


class Branches(nn.Module):
    """Control flow that depends on the data: vmap and tracing both refuse it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if float(x.sum()) > 0 else self.layer(-x)


def test_auto_says_what_it_chose_and_why(small: Problem) -> None:
    told = []
    result = train(small, on_start=lambda *about: told.append(about))
    assert told == [(result.engine, result.engine_reason)]
    assert result.engine in ENGINES
    assert result.engine in result.engine_reason
    assert result.engine_reason == "fast: compiled for this model"


def test_what_the_fast_engine_can_do_is_not_tried(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule decides: how fast a machine is has no say in which digits come out."""
    monkeypatch.setattr(choose, "_try", lambda *_: pytest.fail("tried"))
    assert train(small).engine == "fast"


def test_auto_tries_what_the_fast_engine_cannot_do(small: Problem) -> None:
    result = train(small, nn.Sequential(nn.Softplus(), nn.Linear(4, 3)))
    assert result.engine in ("vectorised", "loop")
    assert "client steps a second" in result.engine_reason


@pytest.mark.parametrize(
    ("slow_rounds", "winner"), [(0, "vectorised"), (1, "vectorised"), (2, "loop")]
)
def test_one_slow_round_does_not_decide_between_engines(
    slow_rounds: int, winner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that comes once is passed over; what comes again will come in the run as well."""
    data = ClientData(torch.randn(8, 4), torch.randint(3, (8,)), np.array([0, 4, 8]))
    problem = make_problem(nn.Linear(4, 3), data, batch_size=4, seed=0)
    quick, slow = [1.0] * (choose.ROUNDS - slow_rounds), [9.0] * slow_rounds
    seconds = {
        "vectorised": iter([1.0, *slow, *quick]),  # the first is a warm-up
        "loop": iter([1.0, *[1.2] * choose.ROUNDS]),
    }
    monkeypatch.setattr(choose, "_try", lambda engine, *_: next(seconds[engine.name]))
    start = problem.layout.vector(problem.model)
    found = choose._side_by_side(list(seconds), problem, start, 100.0)
    assert max(found, key=found.__getitem__) == winner


@pytest.mark.parametrize(
    ("speed", "rounds"),
    [(3.9, choose.FEW_ROUNDS), (4.0, choose.ROUNDS), (4.1, choose.ROUNDS)],
)
def test_fewer_rounds_where_two_steps_take_longer_than_a_trial(
    speed: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients' steps in half a second are four a second."""
    data = ClientData(torch.randn(8, 4), torch.randint(3, (8,)), np.array([0, 4, 8]))
    problem = make_problem(nn.Linear(4, 3), data, batch_size=4, seed=0)
    tried: list[str] = []
    monkeypatch.setattr(choose, "_try", lambda engine, *_: tried.append(engine.name) or 1.0)
    start = problem.layout.vector(problem.model)
    choose._side_by_side(["vectorised", "loop"], problem, start, speed)
    assert tried == ["vectorised", "loop"] * (1 + rounds)  # a warm-up before


def test_measuring_leaves_no_trace(small: Problem) -> None:
    auto = train(small)
    named = train(small, engine=auto.engine)
    np.testing.assert_array_equal(vector(auto.model), vector(named.model))


def test_a_trial_is_like_a_run_and_short(small: Problem) -> None:
    """Clients stay for several steps; where one takes long, for one, and two clients do."""
    data = ClientData.from_datasets(small.datasets)
    problem = make_problem(small.model, data, batch_size=4, seed=0)
    assert _trial(1e6, problem, 2) == (data.clients, TRIAL_STEPS)
    assert _trial(1.0, problem, 2) == (2, 1)
    clients, steps = _trial(2 * data.clients / TRIAL_SECONDS, problem, 2)
    assert (clients, steps) == (data.clients, 2)


@pytest.mark.parametrize("engine", ["auto", "fast", "vectorised"])
def test_what_torch_cannot_stack_goes_to_the_loop(small: Problem, engine: str) -> None:
    torch.manual_seed(0)
    model = Branches()
    result = train(small, model, engine=engine)
    assert result.engine == "loop"
    assert "vectorised does not support this" in result.engine_reason


def test_an_engine_that_cannot_gives_way_and_says_why(small: Problem) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    result = train(small, model, engine="fast")
    assert result.engine == "vectorised"
    assert "fast does not support this" in result.engine_reason


def test_an_unknown_engine_is_named(small: Problem) -> None:
    with pytest.raises(InputError, match="did you mean 'vectorised'") as error:
        train(small, engine="vectorized")
    assert error.value.field == "engine"


class Noisy(nn.Module):
    """Random in a way that compiled code does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(nn.functional.alpha_dropout(self.first(x), 0.5, self.training))


@pytest.mark.parametrize("engine", ["auto", "fast", "vectorised"])
def test_what_is_random_inside_a_model_is_drawn_for_each_client(small: Problem, engine) -> None:
    """vmap would draw it for a chunk: the same run on other ranks would be another run."""
    torch.manual_seed(0)
    model = Noisy()
    result = train(small, model, engine=engine)
    assert result.engine == "loop"
    assert "random" in result.engine_reason
    truth = train(small, model, engine="reference")
    np.testing.assert_array_equal(vector(result.model), vector(truth.model))


def test_an_engine_of_ones_own_is_a_row_of_the_table(small: Problem, monkeypatch) -> None:
    class Own(ENGINES["reference"]):  # type: ignore[misc]
        name = "own"

    monkeypatch.setitem(ENGINES, "own", Own)
    assert train(small, engine="own").engine == "own"
