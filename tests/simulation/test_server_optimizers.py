"""FedAvgM, FedAdagrad, FedAdam and FedYogi against their published formulas, in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Matrix, Problem, classification, convex, gradients, networks, vector

import sdfeel
from sdfeel import SERVER_OPTIMIZERS, InputError, Network, Schedule
from sdfeel.simulation.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

TAU1 = 3
LR = 0.3


def trained(problem: Problem, steps: int, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "lr": LR, "batch_size": 10**6, "engine": "reference"}
    own |= {"schedule": Schedule(TAU1, 1, 1), "steps": steps, "evaluate_every": 10**6, **options}
    return sdfeel.train(problem.model, problem.datasets, **own)


def published(name: str, w: Matrix, delta: Matrix, m: Matrix, v: Matrix) -> tuple[Matrix, ...]:
    """Algorithm 2 of Reddi et al. with the defaults; FedAvgM: Hsu et al."""
    if name == "fedavgm":
        m = 0.9 * m + delta
        return w + m, m, v
    b1 = 0.0 if name == "fedadagrad" else 0.9
    m = b1 * m + (1 - b1) * delta
    if name == "fedadagrad":
        v = v + delta**2
    elif name == "fedadam":
        v = 0.99 * v + 0.01 * delta**2
    else:
        v = v - 0.01 * delta**2 * np.sign(v - delta**2)
    return w + 0.1 * m / (np.sqrt(v) + 1e-3), m, v


@settings(max_examples=12, deadline=None)
@given(networks(), st.sampled_from(sorted(SERVER_OPTIMIZERS)), st.integers(1, 4))
def test_with_one_server_it_is_the_published_method(
    network: Network, name: str, rounds: int
) -> None:
    problem = convex(network)
    shares = np.array(problem.samples) / sum(problem.samples)
    own = gradients(problem)
    w = vector(problem.model)
    m, v = np.zeros_like(w), np.full_like(w, 1e-6)
    for _ in range(rounds):
        models = []
        for gradient in own:
            model = w.copy()
            for _ in range(TAU1):
                model = model - LR * gradient(model)
            models.append(model)
        w, m, v = published(name, w, shares @ np.array(models) - w, m, v)
    result = trained(problem, TAU1 * rounds, scheme="fedavg", server_optimizer=name)
    np.testing.assert_allclose(vector(result.model), w, rtol=0, atol=1e-10)


@pytest.fixture
def small() -> Problem:
    return classification([7, 12, 5, 9], [[0, 1], [2], [3]], hidden=3)


@pytest.mark.parametrize("engine", ["reference", "vectorised", "loop", "fast"])
@pytest.mark.parametrize("name", sorted(SERVER_OPTIMIZERS))
def test_engines_agree(small: Problem, name: str, engine: str) -> None:
    one = trained(small, 6, server_optimizer=name, batch_size=4)
    other = trained(small, 6, server_optimizer=name, batch_size=4, engine=engine)
    np.testing.assert_allclose(vector(one.model), vector(other.model), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", sorted(SERVER_OPTIMIZERS))
def test_a_resumed_run_knows_what_its_servers_remember(small: Problem, tmp_path, name: str) -> None:
    """Also of a run that ended with a shorter period, at iteration 5."""
    whole = trained(small, 12, server_optimizer=name, participation=0.6)
    trained(small, 5, server_optimizer=name, participation=0.6, out=tmp_path)
    resumed = trained(
        small, 12, server_optimizer=name, participation=0.6, out=tmp_path, resume=True
    )
    assert torch.equal(
        torch.nn.utils.parameters_to_vector(whole.model.parameters()),
        torch.nn.utils.parameters_to_vector(resumed.model.parameters()),
    )


def test_without_momentum_it_is_the_mean(small: Problem) -> None:
    rule = sdfeel.FedAvgM(eta=1.0, momentum=0.0)
    plain, ruled = trained(small, 6), trained(small, 6, server_optimizer=rule)
    np.testing.assert_allclose(vector(plain.model), vector(ruled.model), rtol=0, atol=1e-6)


def test_buffers_are_the_mean_of_the_clients() -> None:
    """A running variance that followed Adam could become negative."""
    problem = classification([9, 9], [[0, 1]], "path", hidden=3)
    problem.model = torch.nn.Sequential(problem.model[0], torch.nn.BatchNorm1d(3), problem.model[2])
    plain = trained(problem, TAU1, batch_size=4)
    ruled = trained(problem, TAU1, batch_size=4, server_optimizer="fedadam")
    one, other = dict(plain.model.named_buffers()), dict(ruled.model.named_buffers())
    assert torch.equal(one["1.running_var"], other["1.running_var"])


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("fedsgd", "server_optimizer"),
        (3, "server_optimizer"),
        ({"name": "fedadm"}, "server_optimizer.name"),
        ({"name": "fedadm", "eta": 0.1}, "server_optimizer.name"),
        ({"name": "fedadam", "beta": 0.5}, "server_optimizer.beta"),
        ({"momentum": 0.5}, "server_optimizer.momentum"),
        ({"name": "fedavgm", "momentum": 1.0}, "server_optimizer.momentum"),
        ({"name": "fedyogi", "tau": 0.0}, "server_optimizer.tau"),
        ({"name": "fedyogi", "eta": float("nan")}, "server_optimizer.eta"),
    ],
)
def test_what_is_wrong_is_named(given: object, field: str) -> None:
    with pytest.raises(InputError) as found:
        Settings.of({"server_optimizer": given})
    assert found.value.field == field


@pytest.mark.parametrize("rule", [None, sdfeel.FedAvgM(0.5, 0.3), sdfeel.FedYogi(tau=0.1)])
def test_a_file_says_what_python_says(rule: object) -> None:
    table = Settings(server_optimizer=rule).table()["server_optimizer"]
    assert Settings.of(Settings.take_from({"server_optimizer": table})).server_optimizer == rule
