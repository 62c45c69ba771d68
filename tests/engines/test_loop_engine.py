"""The loop engine's processes: what they say, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import RunError, Schedule
from sdfeel.data import ClientData
from sdfeel.engines.draws import Draws
from sdfeel.engines.engine import Work
from sdfeel.engines.loop import LoopEngine
from sdfeel.engines.problem import make_problem
from sdfeel.engines.processes import ALIGNED, END, _cut, _shared

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


@pytest.fixture
def two_threads():
    """As many processes as torch has threads; tests have one by default."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def train(engine: LoopEngine, models: torch.Tensor, steps: int = 3) -> np.ndarray:
    """A period of the first clients, each from its row of `models`."""
    ones, each = np.ones(len(models), dtype=np.int64), np.arange(len(models))
    return engine.train(Work(each, ones, steps * ones, (models.clone(), each)), models)


def engine_of(model: nn.Module, clients: int = 5) -> tuple[LoopEngine, torch.Tensor]:
    world = classification([8] * clients, [list(range(clients))], "path")
    data = ClientData.from_datasets(world.datasets)
    problem = make_problem(model, data, batch_size=4, seed=0)
    return LoopEngine(problem), problem.layout.vector(problem.model).repeat(clients, 1)


class Picky(nn.Module):
    """Trains on a batch of four, and complains about it in the middle of training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        if self.calls > 3:
            raise ValueError("enough is enough")
        return self.layer(x)


@pytest.mark.usefixtures("two_threads")
def test_what_a_users_model_raises_is_told() -> None:
    engine, models = engine_of(Picky())
    with pytest.raises(RuntimeError, match="ValueError: enough is enough"):
        train(engine, models)
    engine.close()


@pytest.mark.usefixtures("two_threads")
def test_after_a_failure_others_begin_anew() -> None:
    """Who was still at work on a call that failed must not answer the next one."""
    engine, models = engine_of(Picky())
    before = models[:2].clone()
    expected = train(engine, before, steps=1)
    failed = engine._processes
    assert failed is not None
    processes = failed._processes
    with pytest.raises(RuntimeError, match="enough is enough"):
        train(engine, models.clone())
    assert all(process.exitcode is not None for process in processes)
    after = models[:2].clone()
    assert np.array_equal(train(engine, after, steps=1), expected)
    assert torch.equal(after, before)
    engine.close()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 12), st.data())
def test_what_is_drawn_does_not_depend_on_who_is_drawn_for_with_it(
    sizes: list[int], together: int, data: st.DataObject
) -> None:
    """Each process draws for other clients too; batches and seeds must be the same in all."""
    world = classification(sizes, [list(range(len(sizes)))], "path")
    problem = make_problem(
        nn.Linear(4, 3), ClientData.from_datasets(world.datasets), batch_size=4, seed=3
    )
    first = np.array([data.draw(st.integers(1, 2)) for _ in sizes])
    start = torch.empty(0), np.arange(0)
    whole = Work(np.arange(len(sizes)), first, first + 1, start)
    draws = Draws(problem, whole, seeded=True)
    draws._together = together
    for row in data.draw(st.permutations(range(len(sizes)))):
        alone = Work(whole.clients[row:][:1], first[row:][:1], whole.last[row:][:1], start)
        one, other = draws.of(row), Draws(problem, alone, seeded=True).of(0)
        assert torch.equal(one.batches, other.batches)
        assert np.array_equal(one.seeds, other.seeds)
        assert (one.client, one.first) == (row, first[row]) == (other.client, other.first)


@pytest.mark.usefixtures("two_threads")
def test_a_process_that_dies_ends_the_run_in_words() -> None:
    engine, models = engine_of(nn.Linear(4, 3))
    train(engine, models)
    assert engine._processes is not None
    for process in engine._processes._processes:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    with pytest.raises(RunError, match="was lost"):
        train(engine, models)
    engine.close()


@pytest.mark.usefixtures("two_threads")
def test_processes_end_with_the_engine() -> None:
    engine, models = engine_of(nn.Linear(4, 3))
    train(engine, models)
    assert engine._processes is not None
    processes = engine._processes._processes
    assert len(processes) == 2
    engine.close()
    assert [process.exitcode for process in processes] == [0, 0]


@pytest.mark.usefixtures("two_threads")
def test_of_two_engines_either_can_end_first() -> None:
    """The processes of the later one were forked with all that the earlier one had open."""
    first, models = engine_of(nn.Linear(4, 3))
    second, _ = engine_of(nn.Linear(4, 3))
    train(first, models.clone())
    train(second, models)
    processes = []
    for engine in (first, second):
        assert engine._processes is not None
        processes += engine._processes._processes
        engine.close()
    assert [process.exitcode for process in processes] == [0] * 4


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# The write end of a pipe is open in it and in all that it forks: who reads hears when all are gone.
KILLED = """
import os, signal, sys
import torch
from speed.jobs import Job, make_contender

torch.set_num_threads(2)
engine = make_contender(Job("loop", model="gru", clients=4, samples=20, servers=2, tau1=2))
engine.run(1)
print(len(engine._engine._processes._processes), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_end_with_a_program_that_is_killed() -> None:
    listen, held = os.pipe()
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=BENCHMARKS,  # where its job is
        pass_fds=[held],
        stdout=subprocess.PIPE,
        check=False,
    )
    os.close(held)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"2\n")
    assert os.read(listen, 1) == b""
    os.close(listen)


# Threads that have multiplied matrices free what MKL keeps for them after Python has joined them.
# A process forked meanwhile would wait for ever for a lock of theirs: the alarm ends it all.
JOINED = """
import signal
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import torch
from torch import nn
from sdfeel.data import ClientData
from sdfeel.engines.engine import Work
from sdfeel.engines.loop import LoopEngine
from sdfeel.engines.problem import make_problem

signal.alarm(100)
torch.set_num_threads(2)
x, w = torch.rand(280, 28), torch.rand(28, 64)
data = ClientData(torch.rand(40, 28, 28), torch.randint(64, (40,)), np.arange(5) * 10)
model = nn.Sequential(nn.Linear(28, 64), nn.Flatten())
problem = make_problem(model, data, batch_size=10, seed=0)
models, ones = problem.layout.vector(model).repeat(4, 1), np.ones(4, dtype=np.int64)
work = Work(np.arange(4), ones, ones, (models.clone(), np.arange(4)))
for _ in range(50):
    engine = LoopEngine(problem)
    with ThreadPoolExecutor(2, "joined", torch.set_num_threads, (1,)) as pool:
        list(pool.map(lambda _: [torch.mm(x, w) for _ in range(20)], range(4)))
    engine.train(work, models)
    engine.close()
"""


def test_processes_are_forked_when_no_thread_holds_a_lock() -> None:
    program = subprocess.Popen([sys.executable, "-c", JOINED], start_new_session=True)
    try:
        assert program.wait() == 0
    finally:  # those that wait for a lock do not hear that it has ended
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("optimizer", [sdfeel.SGD(prox=0.1), sdfeel.Momentum(0.9, memory="keep")])
def test_a_run_in_processes_is_the_run_in_one(small: Problem, optimizer: sdfeel.Optimizer) -> None:
    """Rows that begin as servers' models, anchors and memories all go through shared memory."""

    def run(engine: str) -> sdfeel.Result:
        return sdfeel.train(
            small.model, small.datasets, network=small.network, schedule=Schedule(3, 2, 2),
            steps=20, lr=0.1, batch_size=4, optimizer=optimizer, engine=engine, evaluate_every=7,
        )  # fmt: skip

    np.testing.assert_array_equal(vector(run("loop").model), vector(run("reference").model))


@given(st.integers(0, 300), st.integers(2, 9))
def test_parts_of_a_call_are_everybody_once_and_fall(count: int, hands: int) -> None:
    """Few and large first, for each has a price; the last ones small, so that all end together."""
    parts = _cut(count, hands)
    assert np.array_equal(np.concatenate([np.arange(0), *parts]), np.arange(count))
    sizes = [len(part) for part in parts]
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or sizes[-1] == 1
    assert not sizes or sizes[0] <= max(1, -(-count // hands))


@pytest.mark.parametrize("hands", [2, 64, 1024])
def test_all_parts_of_a_call_fit_into_a_pipe_before_anybody_takes_one(hands: int) -> None:
    """65,536 bytes on Linux, two for each number: a longer list would wait for readers for ever."""
    parts = _cut(10**6, hands)
    assert len(parts) + hands < 2**16 // 2 <= END


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 15, 16, 17])
def test_shared_rows_begin_at_whole_vectors(columns: int, dtype: torch.dtype) -> None:
    """Below, at and above a vector of either type; rows do not lie in each other."""
    memory = _shared(3, columns, dtype)
    assert memory.shape == (3, columns)
    assert all(row.data_ptr() % ALIGNED == 0 for row in memory)
    for number, row in enumerate(memory):
        row.fill_(number)
    assert torch.equal(memory[:, 0], torch.arange(3, dtype=dtype))
    assert torch.equal(memory.amax(dim=1), memory.amin(dim=1))
