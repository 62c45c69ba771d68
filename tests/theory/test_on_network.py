"""Theorem 1 on networks: what comes from the network, the notes, and participation."""

import json
from itertools import product

import numpy as np
import pytest

from sdfeel.errors import InputError
from sdfeel.network import Network, weighted_norm
from sdfeel.theory.bound import Constants
from sdfeel.theory.on_network import bound_on
from sdfeel.theory.participation import HEURISTIC, participation

CONSTANTS = Constants(1.0, 2.0, 3.0, 4.0)


def test_the_averager_s_own_contraction_takes_the_place_of_zeta_to_the_alpha():
    network = Network.ring(10, 5)
    found = bound_on(
        network, CONSTANTS, tau1=2, tau2=1, averager="chebyshev", alpha=5, lr=0.01, iterations=10
    )
    assert found.theorem.schedule.contraction == pytest.approx(0.0818, abs=5e-5)
    assert any("chebyshev" in note for note in found.notes)


def test_unequal_clusters_the_literal_norm_is_wrong_and_said_so():
    network = Network.build("ring", 4, [1, 2, 9, 4])
    operator = network.averager("paper").operator - network.shares.cluster[:, None]
    literal = bound_on(network, CONSTANTS, tau1=1, tau2=1, lr=0.001, iterations=10)
    corrected = bound_on(
        network, CONSTANTS, tau1=1, tau2=1, lr=0.001, iterations=10, version="corrected"
    )
    assert np.linalg.norm(operator, 2) > network.zeta * 1.01
    assert weighted_norm(operator, network.shares.cluster) == pytest.approx(network.zeta)
    assert any("m-weighted" in note for note in literal.notes)
    assert corrected.notes == ()


def test_json_has_no_infinities():
    found = bound_on(
        Network.ring(10, 5), Constants(100.0, 1, 1, 1), tau1=20, tau2=20, lr=1.0, iterations=10
    )
    text = json.dumps(found.as_dict(), allow_nan=False)
    assert json.loads(text)["bound"] is None


def test_the_weights_of_those_present_are_exact():
    """Against all 2^C patterns of presence, for clusters and clients of unequal size."""
    network = Network([[0, 1, 2], [3]], [(0, 1)], samples=[5, 1, 2, 4])
    beta, shares = 0.3, network.shares
    second = moving = 0.0
    for pattern in product([False, True], repeat=4):
        present = np.array(pattern)
        chance = np.prod(np.where(present, beta, 1 - beta))
        weights = shares.within_present(present) * shares.cluster[network.clusters.server_of]
        second += chance * np.sum(weights**2)
        moving += chance * weights.sum()
    found = participation(shares, beta)
    assert found.weights == pytest.approx(second, rel=1e-4)
    assert found.moving == pytest.approx(moving)


def test_everybody_there_is_the_theorem_itself_and_less_is_a_marked_heuristic():
    network = Network.ring(10, 5)
    arguments = {"tau1": 5, "tau2": 1, "lr": 0.001, "iterations": 100}
    bounds = [bound_on(network, CONSTANTS, beta=beta, **arguments) for beta in (1.0, 0.8, 0.5, 0.2)]
    values = [found.theorem.bound for found in bounds]
    assert values == sorted(values)
    assert HEURISTIC not in bounds[0].notes
    assert all(HEURISTIC in found.notes for found in bounds[1:])


@pytest.mark.parametrize("beta", [0, -0.1, 1.1])
def test_a_probability_is_a_probability(beta):
    with pytest.raises(InputError, match="beta"):
        participation(Network.ring(3).shares, beta)
