"""Measured constants against problems where they are known."""

import numpy as np
import pytest
import torch
from torch import nn

from sdfeel.data import ClientData
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.theory.constants import measure
from sdfeel.theory.split import kappa_split


def _half_square(outputs, targets):
    return 0.5 * ((outputs - targets) ** 2).sum(dim=1).mean()


@pytest.fixture
def least_squares():
    """Clients with inputs of one fixed covariance: every Hessian is known."""
    rng = np.random.default_rng(0)
    network = Network([[0, 1], [2, 3]], [(0, 1)])
    inputs, targets = [], []
    for client in range(4):
        x = np.array([[2.0, 0.0], [0.0, 1.0]] * 10) * (1 + (client == 3))
        shift = [1.0, 1.0, -1.0, -2.0][client]
        inputs.append(x)
        targets.append((x @ [[1.0], [shift]]) + 0.1 * rng.normal(size=(20, 1)))
    data = ClientData(
        torch.from_numpy(np.concatenate(inputs)),
        torch.from_numpy(np.concatenate(targets)),
        np.arange(5) * 20,
    )
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.zero_()
    return model, data, network


def test_smoothness_is_the_largest_eigenvalue_of_a_client_s_hessian(least_squares):
    model, data, network = least_squares
    found = measure([model], data, network, loss=_half_square, batch_size=5)
    # The mean of x x' is diag(2, 1/2), four times that at client 3.
    assert found.smoothness.value == pytest.approx(8.0, rel=1e-3)
    assert found.smoothness.low == pytest.approx(2.0, rel=1e-3)


def test_kappa_splits_into_two_parts_that_add_up(least_squares):
    model, data, network = least_squares
    found = measure([model], data, network, loss=_half_square, batch_size=5)
    gradients = []
    for client in range(4):
        x, y = (part.numpy() for part in data.client(client))
        gradients.append(-(x * y).mean(axis=0))
    gradients = np.array(gradients)
    split = kappa_split(gradients, network.shares)
    total = np.mean(np.sum((gradients - gradients.mean(axis=0)) ** 2, axis=1))
    assert found.inside.value == pytest.approx(split.inside)
    assert found.between.value == pytest.approx(split.between)
    assert split.total == pytest.approx(total)
    assert found.constants().non_iid == pytest.approx(total)
    assert found.constants(worst=True).non_iid >= found.constants().non_iid


def test_full_batches_have_no_noise_and_small_ones_have_the_right_one(least_squares):
    model, data, network = least_squares
    assert measure([model], data, network, loss=_half_square, batch_size=20).variance.value == 0
    found = [
        measure([model], data, network, loss=_half_square, batch_size=1, seed=s).variance.value
        for s in range(40)
    ]
    exact = 0.0
    for client in range(4):
        x, y = (part.numpy() for part in data.client(client))
        single = -(x * y)
        exact += np.mean(np.sum((single - single.mean(axis=0)) ** 2, axis=1)) / 4
    assert np.mean(found) == pytest.approx(exact, rel=0.2)


def test_each_estimate_says_what_it_is_and_how_far_it_spread(least_squares):
    model, data, network = least_squares
    later = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        later.weight.copy_(torch.tensor([[1.0, 0.0]]))
    steps = []
    found = measure(
        [model, later], data, network, loss=_half_square, batch_size=5,
        progress=lambda done, total, what: steps.append(done / total),
    )  # fmt: skip
    for one in vars(found).values():
        assert one.low <= one.value <= one.high
    assert "not a supremum" in found.smoothness.words
    assert steps == sorted(steps)
    assert steps[-1] == 1
    assert found.gap.low > 0


def test_no_model_is_refused(least_squares):
    _, data, network = least_squares
    with pytest.raises(InputError, match="models"):
        measure([], data, network)
