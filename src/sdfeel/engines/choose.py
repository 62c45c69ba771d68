"""Which engine: the one asked for or, with "auto", one that a rule or a trial chooses.

A problem that the fast engine can do is trained by it. Of another one some steps are tried: which
of the others is quickest depends on the model's operations, and no rule is known.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
import torch
from torch import Tensor

from sdfeel.engines.engine import Engine, Work
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.fast.errors import Unsupported
from sdfeel.engines.loop import LoopEngine
from sdfeel.engines.problem import Problem
from sdfeel.engines.reference import ReferenceEngine
from sdfeel.engines.vectorised import VectorisedEngine
from sdfeel.errors import InputError, closest

__all__ = ["ENGINES", "ChosenEngine", "Unsupported", "build_engine", "check_engine"]

# A measured engine takes so many clients along for so many steps, at most, and about so many
# seconds. Several steps, as in a run: a visit has a price of its own.
TRIAL_CLIENTS = 50
TRIAL_STEPS = 5
TRIAL_SECONDS = 0.5
# Engines whose speeds differ by less than this are measured again, in turn, so many times; fewer
# where a step alone takes longer than a trial should.
CLOSE = 1.3
ROUNDS, FEW_ROUNDS = 4, 2

ENGINES: dict[str, Callable[[Problem], Engine]] = {
    "reference": ReferenceEngine,
    "loop": LoopEngine,
    "vectorised": VectorisedEngine,
    "fast": FastEngine,
}
# Those that can be fastest, in the order in which they stand in for one that cannot do a problem.
# The reference is the loop on one core.
FASTEST = ("fast", "vectorised", "loop")
TRIED = FASTEST[1:]


@dataclass(frozen=True)
class ChosenEngine:
    """The engine, and in one line why it is this one."""

    engine: Engine
    reason: str


def build_engine(
    name: str, problem: Problem, start: Tensor, *, measure: bool = True
) -> ChosenEngine:
    """The engine `name`; "auto" measures steps from the model `start` and says which.

    measure  False where several processes must take the same: then "auto" is the first that can
    """
    if name == "auto":
        return _fastest(problem, start) if measure else _named("fast", problem, start)
    check_engine(name)
    return _named(name, problem, start)


def check_engine(name: str) -> None:
    """Raise InputError unless there is an engine of that name."""
    if name != "auto" and name not in ENGINES:
        raise InputError("engine", name, closest(name, [*ENGINES, "auto"]))


def _named(name: str, problem: Problem, start: Tensor) -> ChosenEngine:
    """The engine asked for or, if it cannot do this, the next one that can: always in words."""
    remarks: list[str] = []
    order = FASTEST[FASTEST.index(name) :] if name in FASTEST else (name,)
    for candidate in order:
        try:
            engine = ENGINES[candidate](problem)
            if candidate == "vectorised":
                _try(engine, start, (1, 1))
            return ChosenEngine(engine, "; ".join([candidate, *remarks]))
        except (Unsupported, RuntimeError) as reason:
            if candidate == order[-1]:
                raise
            remarks.append(f"{candidate} does not support this: {_in_short(reason)}")
    raise AssertionError  # the last one returned or raised


def _in_short(reason: Exception) -> str:
    """Return the beginning of a reason: torch's are paragraphs."""
    return shorten(str(reason).splitlines()[0], width=160, placeholder=" ...")


def _try(engine: Engine, start: Tensor, trial: tuple[int, int]) -> float:
    """Seconds of the first clients' first steps; torch says at the first what it cannot do."""
    clients, steps = trial
    models = start.to(engine.problem.device).repeat(clients, 1)
    ones, each, chain = np.ones(clients, dtype=np.int64), np.arange(clients), engine.problem.chain
    width = engine.problem.layout.parameters
    rows = {name: models[:, : row.width or width].clone() for name, row in chain.rows.items()}
    shared = {name: (torch.zeros_like(models[:, :width]), each) for name in chain.shared}
    begin = time.perf_counter()
    work = Work(each, ones, steps * ones, (models.clone(), each), rows, shared)
    engine.train(work, models)
    return time.perf_counter() - begin


def _fastest(problem: Problem, start: Tensor) -> ChosenEngine:
    """The fast engine if it can do this; else measure the others and build the winner."""
    speeds: dict[str, float] = {}
    remarks: list[str] = []
    try:
        return ChosenEngine(ENGINES["fast"](problem), "fast: compiled for this model")
    except (Unsupported, RuntimeError) as reason:
        remarks.append(f"fast does not support this: {_in_short(reason)}")
    for name in TRIED:
        try:
            with closing(ENGINES[name](problem)) as engine:
                speeds[name] = _speed(engine, start)
        except (Unsupported, RuntimeError) as reason:
            remarks.append(f"{name} does not support this: {_in_short(reason)}")
    if not speeds:
        raise InputError("model", type(problem.model).__name__, "; ".join(remarks))
    close = [name for name, speed in speeds.items() if CLOSE * speed > max(speeds.values())]
    if len(close) > 1:
        speeds |= _side_by_side(close, problem, start, max(speeds.values()))
    best = max(close, key=lambda name: speeds[name])
    measured = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    engine = ENGINES[best](problem)
    return ChosenEngine(
        engine, "; ".join([f"{best} (client steps a second: {measured})", *remarks])
    )


def _speed(engine: Engine, start: Tensor) -> float:
    """Client steps a second, after a warm-up from which the length of the trial follows."""
    few = min(max(2, torch.get_num_threads()), engine.problem.data.clients)
    _try(engine, start, (few, 1))
    took = _try(engine, start, (few, 1))
    if took > TRIAL_SECONDS:
        return few / took
    trial = _trial(few / took, engine.problem, few)
    return math.prod(trial) / min(_try(engine, start, trial) for _ in range(2))


def _side_by_side(
    names: Sequence[str], problem: Problem, start: Tensor, speed: float
) -> dict[str, float]:
    """Measure engines of similar speed in turn, so that other programs do not decide."""
    trial = _trial(speed, problem, min(2, problem.data.clients))
    with ExitStack() as stack:
        engines = {name: stack.enter_context(closing(ENGINES[name](problem))) for name in names}
        for engine in engines.values():
            _try(engine, start, trial)
        rounds = ROUNDS if math.prod(trial) <= TRIAL_SECONDS * speed else FEW_ROUNDS
        took = [[_try(engine, start, trial) for engine in engines.values()] for _ in range(rounds)]
    # What other programs slow down more here they will slow down more in the run, so that a slow
    # round counts; but not the slowest, which may have met something that comes once.
    slow = [sorted(each)[-2] for each in zip(*took, strict=True)]
    return {name: math.prod(trial) / seconds for name, seconds in zip(names, slow, strict=True)}


def _trial(speed: float, problem: Problem, least: int) -> tuple[int, int]:
    """Return how many clients, and steps of each, make a trial of the right length."""
    most = min(TRIAL_CLIENTS, problem.data.clients)
    clients = int(min(max(TRIAL_SECONDS * speed, least), most))
    return clients, int(min(max(TRIAL_SECONDS * speed / clients, 1), TRIAL_STEPS))
