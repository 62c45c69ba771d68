"""Whole local updates equal a plain torch loop with the same batches."""

from __future__ import annotations

import copy
import ctypes

import numpy as np
import pytest
import torch
from fast_networks import data, paper_cnn, plain_loop, vector
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sdfeel.algorithm.randomness import draw_batches
from sdfeel.errors import InputError
from sdfeel.simulation.engines.fast import compile_model

MLP = nn.Sequential(nn.Flatten(), nn.Linear(32, 24), nn.ReLU(), nn.Linear(24, 10))
NETWORKS = {
    "cnn": (paper_cnn(), (1, 28, 28)),
    "mlp": (MLP, (2, 4, 4)),
    "odd-mlp": (nn.Sequential(nn.Linear(13, 9), nn.Tanh(), nn.Linear(9, 5)), (13,)),
    "regression": (nn.Linear(16, 3), (16,)),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_equal_to_a_plain_loop(name: str, threads: int) -> None:
    torch.manual_seed(2)
    module, shape = NETWORKS[name]
    module = copy.deepcopy(module).to(torch.float64)
    loss = "mse" if name == "regression" else "cross-entropy"
    sizes = [30, 4, 150, 11]  # the second trains on all it has, the third is longer than a block
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    inputs, targets = data(module, shape, int(offsets[-1]), loss, torch.float64)
    start = vector(module)
    clients, ids = np.array([2, 0, 1]), np.array([102, 7, 2**31 + 5])
    for batch_size in (10, 140):
        models = np.tile(start, (4, 1))
        run = {"seed": 2**40 + 3, "first": 6, "last": 10, "batch_size": batch_size, "lr": 0.05}
        compiled = compile_model(module, loss, shape, torch.float64)
        losses = compiled.local_updates(
            models, clients, ids, inputs, targets, offsets, threads=threads, **run
        )
        for row, (client, who) in enumerate(zip(clients, ids, strict=True)):
            own = copy.deepcopy(module)
            part = slice(offsets[client], offsets[client + 1])
            expected = plain_loop(own, loss, inputs[part], targets[part], int(who), **run)
            np.testing.assert_allclose(losses[row], expected, rtol=1e-10)
            np.testing.assert_allclose(models[client], vector(own), atol=1e-10)
        np.testing.assert_array_equal(models[3], start)  # not listed: left alone


def test_threads_do_not_change_a_bit() -> None:
    torch.manual_seed(5)
    module, shape = paper_cnn(), (1, 28, 28)
    inputs, targets = data(module, shape, 120, "cross-entropy", torch.float32)
    compiled = compile_model(module, "cross-entropy", shape)
    results = []
    for threads in (1, 2, 4):
        models = torch.from_numpy(np.tile(vector(module), (6, 1)))
        every = np.arange(6)
        losses = compiled.local_updates(
            models, every, every, inputs, targets, np.arange(7) * 20,
            seed=1, first=1, last=4, batch_size=10, lr=0.1, threads=threads,
        )  # fmt: skip
        results.append((models.numpy().copy(), losses))
    for models, losses in results[1:]:
        np.testing.assert_array_equal(models, results[0][0])
        np.testing.assert_array_equal(losses, results[0][1])


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


def test_bad_input_is_named() -> None:
    compiled = compile_model(nn.Linear(4, 3), "cross-entropy", (4,), optimise="-O1")
    model, inputs = np.zeros(15, np.float32), np.zeros((6, 4), np.float32)
    with pytest.raises(InputError, match="labels must lie in 0 to 2"):
        compiled.gradient(model, inputs, np.full(6, 3))
    with pytest.raises(InputError, match="inputs"):
        compiled.gradient(model, inputs.astype(np.float64), np.zeros(6, np.int64))
    with pytest.raises(InputError, match="model"):
        compiled.gradient(model[:-1], inputs, np.zeros(6, np.int64))
    with pytest.raises(InputError, match="every client must hold a sample"):
        compiled.local_updates(
            np.zeros((2, 15), np.float32), np.arange(2), np.arange(2), inputs,
            np.zeros(6, np.int64), np.array([0, 6, 6]),
            seed=0, first=1, last=1, batch_size=2, lr=0.1, threads=1,
        )  # fmt: skip
