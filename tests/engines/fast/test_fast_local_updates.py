"""Whole local updates equal a plain torch loop with the same batches."""

from __future__ import annotations

import copy
import ctypes
from typing import Any

import numpy as np
import pytest
import torch
from fast_networks import data, paper_cnn, plain_loop, vector
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.engines.fast import CompiledModel, Rule, compile_model
from sdfeel.errors import InputError


class Idle(nn.Module):
    """A parameter that no layer uses, in front of one that does: rules move it all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Parameter(torch.randn(19))
        self.layer = nn.Linear(5, 3)
        self.last = nn.Parameter(torch.randn(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


MLP = nn.Sequential(nn.Flatten(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 10))
SMALL_CNN = nn.Sequential(
    nn.Conv2d(1, 3, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(3, 5, 3), nn.Flatten(),
    nn.Linear(45, 5),
)  # fmt: skip
NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "cnn": (paper_cnn(), (1, 28, 28)),
    "small-cnn": (SMALL_CNN, (1, 12, 12)),
    "mlp": (MLP, (2, 4, 4)),
    "odd-mlp": (nn.Sequential(nn.Linear(13, 9), nn.Tanh(), nn.Linear(9, 5)), (13,)),
    "regression": (nn.Linear(16, 3), (16,)),
    "idle": (Idle(), (5,)),
}
RULES = {
    "sgd": Rule(),
    "decay": Rule(weight_decay=0.1),
    "prox": Rule(prox=0.2),
    "shift": Rule(shifted=True),
    "momentum": Rule(momentum=0.9),
    "nesterov": Rule(momentum=0.8, nesterov=True, weight_decay=0.05),
    "all": Rule(0.05, 0.2, 0.7, nesterov=True, shifted=True),
}


class World:
    """Clients of different sizes with a network, and one call for all of them."""

    def __init__(self, name: str, sizes: list[int], dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(2)
        module, self.shape = NETWORKS[name]
        self.module = copy.deepcopy(module).to(dtype)
        self.loss = "mse" if name in ("regression", "idle") else "cross-entropy"
        self.sizes, self.dtype = sizes, dtype
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        total = int(self.offsets[-1])
        self.inputs, self.targets = data(self.module, self.shape, total, self.loss, dtype)
        self.ids = np.arange(len(sizes)) * 1000 + 2**31
        self.first = np.arange(len(sizes)) % 3 + 6  # clusters may be at different iterations
        self.last = self.first + (np.arange(len(sizes)) + 2) % 4 + 1
        self.rates = 0.05 / np.arange(1, 20)
        self.start = vector(self.module)
        noise = torch.randn(3, len(sizes), len(self.start), dtype=dtype).numpy()
        self.rows, self.anchor, self.shift = self.start + 0.1 * noise[0], noise[1], 0.1 * noise[2]
        self.rows = self.rows.astype(self.start.dtype)

    def compile(self, rule: Rule, optimise: str = "-O1") -> CompiledModel:
        return compile_model(self.module, self.loss, self.shape, self.dtype, optimise, rule=rule)

    def train(self, compiled: CompiledModel, batch_size: int, **changes: Any) -> Any:
        every = np.arange(len(self.sizes))
        arguments = {
            "seed": 2**40 + 3, "batch_size": batch_size, "first": self.first, "last": self.last,
            "rates": self.rates, "first_rate": 5, "start": (self.rows, every),
        } | changes  # fmt: skip
        return compiled.local_updates(
            every, self.ids, self.inputs, self.targets, self.offsets, **arguments
        )

    def expected(
        self, client: int, batch_size: int, rule: Rule
    ) -> tuple[list[float], np.ndarray[Any, Any]]:
        own = copy.deepcopy(self.module)
        torch.nn.utils.vector_to_parameters(
            torch.from_numpy(self.rows[client].copy()), own.parameters()
        )
        part = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        losses = plain_loop(
            own, self.loss, self.inputs[part], self.targets[part], int(self.ids[client]),
            seed=2**40 + 3, first=int(self.first[client]), last=int(self.last[client]),
            batch_size=batch_size, rates=self.rates, first_rate=5, rule=rule,
            anchor=self.anchor[client] if rule.prox else None,
            shift=self.shift[client] if rule.shifted else None,
        )  # fmt: skip
        return losses, vector(own)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *((name, "sgd") for name in NETWORKS),
        *((name, rule) for name in ("mlp", "small-cnn") for rule in RULES if rule != "sgd"),
        *(("idle", rule) for rule in ("decay", "all")),
    ],
)
def test_equal_to_a_plain_loop(name: str, rule: str) -> None:
    """Batches below, at and above a client's samples, and above a block, all in one call."""
    affine = RULES[rule]
    world = World(name, [30, 10, 4, 150, 11, 140])
    compiled = world.compile(affine, "-O3" if rule == "sgd" else "-O1")
    every = np.arange(6)
    for batch_size in (10, 140):
        given = world.rows.copy()
        out = np.full((8, len(world.start)), 7.0)
        losses = world.train(
            compiled, batch_size, out=(out, every + 1), threads=3,
            anchor=(world.anchor, every) if affine.prox else None,
            shift=(world.shift, every) if affine.shifted else None,
        )  # fmt: skip
        for client in range(6):
            steps, model = world.expected(client, batch_size, affine)
            np.testing.assert_allclose(losses[client, : len(steps)], steps, rtol=1e-10)
            assert np.isnan(losses[client, len(steps) :]).all()
            scale = np.abs(model).max()
            np.testing.assert_allclose(out[client + 1], model, rtol=0, atol=1e-12 * scale)
        np.testing.assert_array_equal(world.rows, given)  # a copy was trained, not the row
        assert (out[[0, 7]] == 7).all()  # rows of nobody


def test_the_anchor_is_the_start_unless_it_is_given() -> None:
    world, every = World("mlp", [12, 5]), np.arange(2)
    compiled = world.compile(RULES["prox"])
    out = np.zeros((2, 2, len(world.start)))
    world.train(compiled, 4, out=(out[0], every))
    world.train(compiled, 4, out=(out[1], every), anchor=(world.rows, every))
    np.testing.assert_array_equal(out[0], out[1])
    world.train(compiled, 4, out=(out[1], every), anchor=(world.anchor, every))
    assert np.abs(out[0] - out[1]).max() > 1e-3


@pytest.mark.parametrize("rule", ["sgd", "all"])
@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_sums_do_not_depend_on_threads_or_calls(name: str, rule: str) -> None:
    """To the last bit, for 1 to 8 threads, and for a period in one call or in three."""
    affine = RULES[rule]
    world = World(name, [20, 10, 3, 15, 9, 11, 10, 40], torch.float32)
    compiled = world.compile(affine)
    every, server = np.arange(8), np.array([1, 0, 0, 1, 2, 1, 0, 1])
    weights = np.array([0.1, 0.2, 0.3, 0.4, 1.0, 0.3, 0.5, 0.2])
    servers = world.rows[:3]
    shift = (world.shift, every) if affine.shifted else None
    world.first[:], world.last[:] = 6, 11

    def period(threads: int, cuts: tuple[int, ...]) -> tuple[Any, Any, Any]:
        sums = np.zeros((4, len(world.start)), np.float32)
        models = np.zeros((8, len(world.start)), np.float32)
        velocity = np.zeros_like(models) if affine.momentum else None
        losses = []
        for a, b in zip((6, *cuts), (*cuts, 12), strict=True):
            losses.append(
                world.train(
                    compiled, 10, threads=threads, shift=shift,
                    first=np.full(8, a), last=np.full(8, b - 1),
                    start=(servers, server) if a == 6 else (models, every),
                    anchor=(servers, server), out=(models, every),
                    velocity=None if velocity is None else (velocity, every),
                    sums=(sums, server, weights) if b == 12 else None,
                )
            )  # fmt: skip
        return sums, models, np.concatenate(losses, axis=1)

    sums, models, losses = period(1, ())
    for threads, cuts in ((2, ()), (3, ()), (8, ()), (1, (8,)), (3, (7, 10))):
        others = period(threads, cuts)
        np.testing.assert_array_equal(others[0], sums)
        np.testing.assert_array_equal(others[1], models)
        np.testing.assert_array_equal(others[2], losses)
    for d in range(3):
        mean = (weights[server == d, None] * models[server == d].astype(np.float64)).sum(axis=0)
        np.testing.assert_allclose(sums[d], mean, atol=1e-6)
    assert (sums[3] == 0).all()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sum_that_is_empty_begins_at_zero_whatever_stands_there(threads: int, kept: bool) -> None:
    """With the first client that is added in the call; a sum that is begun goes on.

    kept  models are written down, which adds them up in another way
    """
    world = World("mlp", [20, 10, 3, 15, 9], torch.float32)
    compiled = world.compile(RULES["sgd"])
    every, server = np.arange(5), np.array([1, 0, 0, 1, 2])
    expected = np.zeros((3, len(world.start)), np.float32)
    expected[1] = 2.0
    sums = np.full_like(expected, np.nan)
    sums[1] = 2.0
    known = {"threads": threads, "start": (world.rows[:3], server)}
    if kept:
        known["out"] = (np.empty((5, len(world.start)), np.float32), every)
    world.train(compiled, 10, sums=(expected, server, np.ones(5)), **known)
    world.train(
        compiled, 10, sums=(sums, server, np.ones(5)), empty=server != 1,
        **known,
    )  # fmt: skip
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize("name", ["mlp", "small-cnn"])
def test_what_a_correction_learns_is_how_far_a_client_has_moved(name: str) -> None:
    """From its origin, which is not its start in the second part of a period; its own row only."""
    world = World(name, [20, 10, 3])
    compiled = world.compile(RULES["shift"])
    every, server = np.arange(3), np.array([1, 0, 1])
    servers, control = world.rows[:2].copy(), np.zeros((5, len(world.start)))
    control[every + 1] = world.shift
    before, out = control.copy(), np.zeros((3, len(world.start)))
    world.first[:], world.last[:] = 6, 8
    cut = {"first": np.full(3, 9), "last": np.full(3, 11)}
    known = {"shift": (control, every + 1), "threads": 2}
    learns = {"control": (control, every + 1), "origin": (servers, server), "reach": 4.0}
    world.train(compiled, 10, start=(servers, server), out=(out, every), **known)
    np.testing.assert_array_equal(control, before)
    sums = np.zeros((2, len(world.start)))
    world.train(
        compiled, 10, start=(out, every), out=(out, every), sums=(sums, server, np.ones(3)),
        **cut, **known, **learns,
    )  # fmt: skip
    wanted = before[every + 1] + 0.25 * (out - servers[server])
    np.testing.assert_allclose(control[every + 1], wanted, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(control[[0, 4]], before[[0, 4]])
    np.testing.assert_allclose(sums[1], out[0] + out[2], atol=1e-12)


def test_clients_lose_the_mean_where_all_of_a_sum_are_there() -> None:
    """With what is common to a cluster beside rows of their own; the same bits for any threads."""
    world, every, server = World("mlp", [20, 10, 3, 15, 9]), np.arange(5), np.array([1, 0, 1, 2, 1])
    compiled, servers = world.compile(RULES["shift"]), world.rows[:3].copy()
    common, weights = world.anchor[:3].copy(), np.array([0.2, 1.0, 0.5, 0.6, 0.3])
    whole = server != 2  # somebody else will be added there

    def period(threads: int, **more: Any) -> tuple[Any, Any, Any]:
        control, sums, out = world.shift.copy(), *np.zeros((2, 5, len(world.start)))
        world.train(
            compiled, 10, start=(servers, server), out=(out, every), threads=threads, reach=4.0,
            sums=(sums, server, weights), control=(control, every), origin=(servers, server),
            **({"shift": (control, every), "common": (common, server)} | more),
        )  # fmt: skip
        return control, sums, out

    laid_out = {"shift": (world.shift + common[server], every), "common": None}
    control, sums, out = period(1, whole=whole)
    np.testing.assert_array_equal(out, period(1, **laid_out)[2])
    wanted = world.shift + (out - servers[server]) / 4
    wanted[whole] -= (sums[server] - servers[server])[whole] / 4
    np.testing.assert_allclose(control, wanted, rtol=0, atol=1e-12)
    for threads in (2, 5):
        for one, other in zip((control, sums, out), period(threads, whole=whole), strict=True):
            np.testing.assert_array_equal(one, other)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_call_for_many_is_a_call_for_each(given_data: st.DataObject) -> None:
    """Whatever the clients, their iterations, servers, batch size and threads: the same bits."""
    draw = given_data.draw
    batch = draw(st.sampled_from([1, 7, 8, 9, 10, 11, 16, 17, 140]))
    sizes = draw(
        st.lists(
            st.sampled_from([1, batch - 1 or 1, batch, batch + 1, 150]), min_size=1, max_size=7
        )
    )
    world = World("mlp", sizes, torch.float32)
    every = np.arange(len(sizes))
    compiled = world.compile(Rule())
    server = np.array(draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes))))
    steps = draw(st.lists(st.integers(0, 3), min_size=len(sizes), max_size=len(sizes)))
    world.last = world.first + np.array(steps) - 1
    weights = np.linspace(0.1, 1, len(sizes))
    sums, ones = np.zeros((2, 4, len(world.start)), np.float32)
    losses = world.train(
        compiled, batch, sums=(sums, server, weights), threads=draw(st.integers(1, 5))
    )
    assert losses.shape == (len(sizes), max(steps))
    for c in every:
        alone = compiled.local_updates(
            every[[c]], world.ids[[c]], world.inputs, world.targets, world.offsets,
            seed=2**40 + 3, batch_size=batch, first=world.first[[c]], last=world.last[[c]],
            rates=world.rates, first_rate=5, start=(world.rows, every[[c]]),
            sums=(ones, server[[c]], weights[[c]]),
        )  # fmt: skip
        np.testing.assert_array_equal(losses[c, : steps[c]], alone[0])
        assert np.isnan(losses[c, steps[c] :]).all()
    np.testing.assert_array_equal(sums, ones)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(1, 60),
    st.integers(1, 400),
)
def test_batches_equal_those_of_numpy(seed: int, who: int, k: int, batch: int, more: int) -> None:
    compiled = compile_model(nn.Linear(2, 2), "mse", (2,), optimise="-O1")
    chosen = np.empty(batch, dtype=np.int64)
    count = compiled._library.draw_batch(
        ctypes.c_uint64(seed), ctypes.c_int64(who), ctypes.c_int64(k),
        ctypes.c_int64(batch + more), ctypes.c_int64(batch), ctypes.c_void_p(chosen.ctypes.data),
    )  # fmt: skip
    expected = draw_batches(seed, np.array([who]), np.array([batch + more]), np.array([k]), batch)
    assert count == batch
    np.testing.assert_array_equal(chosen, expected[0, 0])


def test_evaluation_over_many_blocks() -> None:
    torch.manual_seed(6)
    module, shape = paper_cnn(), (1, 28, 28)
    inputs, targets = data(module, shape, 131, "cross-entropy", torch.float32)
    compiled = compile_model(module, "cross-entropy", shape)
    with torch.no_grad():
        outputs = module(inputs)
        expected = float(nn.functional.cross_entropy(outputs, targets))
    for threads in (1, 2):
        mean, right = compiled.evaluate(vector(module), inputs, targets, threads)
        assert mean == pytest.approx(expected, rel=1e-5)
        assert right == int((outputs.argmax(dim=1) == targets).sum())


def test_bad_data_is_named() -> None:
    compiled = compile_model(nn.Linear(4, 3), "cross-entropy", (4,), optimise="-O1")
    model, inputs = np.zeros(15, np.float32), np.zeros((6, 4), np.float32)
    with pytest.raises(InputError, match="labels must lie in 0 to 2"):
        compiled.gradient(model, inputs, np.full(6, 3))
    with pytest.raises(InputError, match="inputs"):
        compiled.gradient(model, inputs.astype(np.float64), np.zeros(6, np.int64))
    with pytest.raises(InputError, match="model"):
        compiled.gradient(model[:-1], inputs, np.zeros(6, np.int64))


def test_a_bad_label_ends_all_threads_and_leaves_no_trace() -> None:
    """Those that wait for the turn of the client that failed must not wait for ever."""
    world, every = World("mlp", [12] * 6, torch.float32), np.arange(6)
    compiled = world.compile(Rule())
    good, sums = world.targets.clone(), np.zeros((1, len(world.start)), np.float32)
    world.targets[5] = 10  # of the first client, for whom all others wait
    with pytest.raises(InputError, match="labels must lie in 0 to 9"):
        world.train(compiled, 12, sums=(sums, every * 0, np.ones(6)), threads=4)
    world.targets = good
    results = [np.zeros_like(sums) for _ in range(2)]
    for result, threads in zip(results, (1, 4), strict=True):
        world.train(compiled, 12, sums=(result, every * 0, np.ones(6)), threads=threads)
    np.testing.assert_array_equal(*results)


ROW = np.zeros((3, 15), np.float32)
TWO = np.arange(2)
READ_ONLY = ROW.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"offsets": np.array([0, 6, 6])}, "every client must hold a sample"),
        ({"offsets": np.array([0, 3, 7])}, "offsets"),
        ({"offsets": np.array([-1, 3, 6])}, "offsets"),
        ({"offsets": np.array([0, 5, 3])}, "every client must hold a sample"),
        ({"offsets": np.zeros(0)}, "offsets"),
        ({"clients": np.array([0, 2])}, "clients"),
        ({"clients": np.array([-1, 0])}, "clients"),
        ({"client_ids": np.arange(3)}, "client_ids"),
        ({"batch_size": 0}, "batch_size"),
        ({"first": np.arange(3)}, "first"),
        ({"last": np.array([1, -1])}, "last"),
        ({"last": np.array([1, 3])}, "rates"),
        ({"first": np.array([0, 1])}, "rates"),
        ({"rates": np.ones((1, 2))}, "rates"),
        ({"start": (ROW, np.array([0, 3]))}, "start"),
        ({"start": (ROW, np.array([-1, 0]))}, "start"),
        ({"start": (ROW, np.array([0]))}, "start"),
        ({"start": (ROW[:, :-1].copy(), TWO)}, "start"),
        ({"start": (ROW[:, ::-1], TWO)}, "start"),
        ({"start": (ROW.astype(np.float64), TWO)}, "start"),
        ({"start": (ROW[0], TWO)}, "start"),
        ({"out": (ROW.copy(), np.array([1, 1]))}, "a row of its own"),
        ({"out": (READ_ONLY, TWO)}, "writable"),
        ({"out": (ROW, np.array([1, 0]))}, "must not be read by other clients"),
        ({"out": (ROW[:2], TWO)}, "must not be read by other clients"),
        ({"sums": (ROW, TWO, np.ones(2))}, "must not be read by other clients"),
        ({"sums": (ROW.copy(), TWO, np.ones(3))}, "sums"),
        ({"sums": (ROW.copy(), np.array([0, 3]), np.ones(2))}, "sums"),
        ({"sums": (READ_ONLY, TWO, np.ones(2))}, "writable"),
        ({"shift": (ROW.copy(), TWO)}, "shift"),
        ({"velocity": (ROW.copy(), TWO)}, "velocity"),
        ({"control": (ROW.copy(), TWO), "origin": (ROW, TWO)}, "control"),
        ({"origin": (ROW, TWO)}, "origin"),
        ({"common": (ROW, TWO)}, "common"),
        ({"whole": np.ones(2, bool)}, "whole"),
        ({"rule": Rule(weight_decay=0.1)}, "rule"),
        ({"inputs": np.zeros((6, 3), np.float32)}, "inputs"),
        ({"targets": np.zeros(5, np.int64)}, "targets"),
    ],
)  # fmt: skip
def test_what_c_must_not_see_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    compiled = compile_model(nn.Linear(4, 3), "cross-entropy", (4,), optimise="-O1")
    arguments: dict[str, Any] = {
        "clients": TWO, "client_ids": TWO, "inputs": np.zeros((6, 4), np.float32),
        "targets": np.zeros(6, np.int64), "offsets": np.array([0, 3, 6]), "seed": 0,
        "batch_size": 2, "first": np.ones(2, np.int64), "last": np.full(2, 2),
        "rates": np.ones(2), "first_rate": 1, "start": (ROW, TWO),
    }  # fmt: skip
    assert compiled.local_updates(**arguments).shape == (2, 2)
    with pytest.raises(InputError, match=named):
        compiled.local_updates(**{**arguments, **change})


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"momentum": float("nan")}, "momentum"),
        ({"prox": float("inf")}, "prox"),
        ({"nesterov": True}, "nesterov"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Rule(**arguments)
