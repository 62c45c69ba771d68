"""Two-level correction: against numpy, its invariants, its optimum and the bound on gamma."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import (
    Matrix,
    Problem,
    Weights,
    convex,
    corrected,
    gradients,
    networks,
    schedules,
    vector,
)

import sdfeel
from sdfeel import CORRECTIONS, InputError, Network, Schedule
from sdfeel.algorithm.methods.corrections import stable_gamma
from sdfeel.network import build_averager
from sdfeel.records.checkpoints import read_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

CLASSES = 3


def rate(k: int) -> float:
    return 0.3 / (1 + k / 10)


def trained(problem: Problem, schedule: Schedule, steps: int, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "lr": rate, "batch_size": 10**6, "engine": "reference"}
    own |= {"schedule": schedule, "steps": steps, "evaluate_every": 10**6, **options}
    return sdfeel.train(problem.model, problem.datasets, **own)


def smallest(mixing: Matrix, mt: Matrix) -> float:
    """In the m-weighted sense: of the matrix that is similar to the mixing and symmetric."""
    root = np.sqrt(mt)
    return float(np.linalg.eigvalsh(mixing / root[:, None] * root[None, :]).min())


def kept(folder) -> tuple[Matrix, Matrix]:
    """z and y of a run, a column for each client in client order and each server."""
    tensors = read_checkpoint(folder / "checkpoint.safetensors", None)[0].tensors
    rows = {name.rpartition(".")[2]: own.double().numpy().T for name, own in tensors.items()}
    return rows.get("z", np.zeros((15, 1))), rows.get("y", np.zeros((15, 1)))


@settings(max_examples=10)
@given(
    networks(max_samples=8),
    schedules,
    st.integers(1, 4),
    st.sampled_from(sorted(CORRECTIONS)),
    st.sampled_from(["paper", "metropolis", "exact"]),
    st.sampled_from([1.0, 0.5]),
)
def test_training_is_the_formulas(
    tmp_path_factory, network, schedule, rounds, name, averager, beta
) -> None:
    """Any network, schedule, variant and averager, rates that fall, clients that are absent."""
    if name == "servers" and network.servers == 1:
        return
    problem = convex(network)
    weights = Weights(network, problem.samples)
    own = build_averager(averager, network.graph, weights.mt, schedule.alpha)
    mixing = np.linalg.matrix_power(weights.P, schedule.alpha) if averager == "paper" else None
    mixing = own.operator if mixing is None else mixing
    low = smallest(mixing, weights.mt)
    gamma = 1.0 if network.servers == 1 else min(1.0, 0.9 * 2 * (1 + low) / (1 - low))
    steps = rounds * schedule.tau
    draw = sdfeel.algorithm.participation.Participation(network.clients, 0, beta)
    out = tmp_path_factory.mktemp("run")
    options = {"correction": name, "averager": averager, "participation": beta, "out": out}
    result = trained(problem, schedule, steps, **options)
    servers, z, y = corrected(
        vector(problem.model),
        gradients(problem),
        weights,
        schedule,
        steps,
        rate,
        mixing=mixing,
        gamma=gamma,
        levels=name,
        present=draw.present,
    )
    mine = np.stack([vector(model) for model in result.server_models], axis=1)
    np.testing.assert_allclose(mine, servers, rtol=0, atol=1e-10)
    np.testing.assert_allclose(vector(result.model), servers @ weights.mt, rtol=0, atol=1e-10)
    of_clients, of_servers = kept(out)
    order = [i for members in network.clusters.members for i in members]
    np.testing.assert_allclose(of_clients, z[:, order] if name != "servers" else 0 * of_clients,
                               rtol=0, atol=1e-9)  # fmt: skip
    np.testing.assert_allclose(of_servers, y if name != "clients" else 0 * of_servers,
                               rtol=0, atol=1e-9)  # fmt: skip
    # Neither moves the weighted mean.
    for members in network.clusters.members:
        assert np.abs(z[:, list(members)] @ weights.m[list(members)]).max() < 1e-9
    if name != "servers":
        places = {client: at for at, client in enumerate(order)}
        for members in network.clusters.members:
            at = [places[i] for i in members]
            assert np.abs(of_clients[:, at] @ weights.m[list(members)]).max() < 1e-9
    if name != "clients":
        assert np.abs(of_servers @ weights.mt).max() < 1e-9


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
def test_a_resumed_run_knows_what_it_corrected(small: Problem, tmp_path, name: str) -> None:
    """It stops in the middle of a period, with absent clients, and after an exchange."""
    own = {"correction": name, "participation": 0.6, "batch_size": 4, "evaluate_every": 7}
    whole = trained(small, Schedule(3, 2, 2), 24, **own)
    for steps in (10, 12):
        trained(small, Schedule(3, 2, 2), steps, out=tmp_path / str(steps), **own)
        again = trained(small, Schedule(3, 2, 2), 24, out=tmp_path / str(steps), resume=True, **own)
        np.testing.assert_array_equal(vector(again.model), vector(whole.model))
    assert not np.array_equal(
        vector(whole.model),
        vector(trained(small, Schedule(3, 2, 2), 24, **own | {"correction": None}).model),
    )


def test_servers_learn_from_exchanges_of_rounded_models_too(tmp_path) -> None:
    """In float64, where models are mixed without a copy in another precision."""
    network = Network([[0, 3], [4, 1, 2], [5]], "path", [6, 5, 3, 8, 4, 7])
    problem = convex(network)
    options = {"correction": "two-level", "averager": "metropolis", "codecs": {"between": "int8"}}
    trained(problem, Schedule(2, 1, 2), 2, out=tmp_path, **options)
    _, y = kept(tmp_path)
    assert np.abs(y).max() > 1e-3
    assert np.abs(y @ network.shares.cluster).max() < 1e-12


# Quadratics, whose optimum is known


def quadratic(flat: float, sizes: tuple[int, ...] = (1, 2, 1, 3)) -> tuple[Problem, Matrix]:
    """A client's loss is |X (w - w_i)|^2 with X = diag(1, flat): all agree on the curvature."""
    rng = np.random.default_rng(3)
    inputs, targets = [], []
    for _ in range(sum(sizes)):
        x = np.diag([1.0, flat])
        inputs.append(x)
        targets.append((x @ rng.normal(size=2))[:, None])
    clusters = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    network = Network([list(own) for own in clusters], "ring")
    model = torch.nn.Linear(2, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    best = np.linalg.lstsq(np.vstack(inputs), np.vstack(targets), rcond=None)[0][:, 0]
    return Problem(network, inputs, targets, model), best


def distance(problem: Problem, best: Matrix, schedule: Schedule, steps: int, **options) -> float:
    own = {"loss": torch.nn.functional.mse_loss, "lr": 0.3, "engine": "vectorised", **options}
    result = trained(problem, schedule, steps, **own)
    found = np.stack([vector(model) for model in result.server_models])
    return float(np.abs(found - best).max())


def heterogeneous() -> tuple[Problem, Matrix]:
    """Curvatures differ between clients: then local steps stop away from the optimum."""
    problem, _ = quadratic(0.8)
    rng = np.random.default_rng(1)
    for client in range(len(problem.inputs)):
        x = problem.inputs[client] * rng.uniform(0.5, 1.2, size=(1, 2))
        problem.inputs[client], problem.targets[client] = x, (x @ rng.normal(size=2))[:, None]
    X, Y = np.vstack(problem.inputs), np.vstack(problem.targets)
    return problem, np.linalg.lstsq(X, Y, rcond=None)[0][:, 0]


@pytest.mark.parametrize("scheme", ["sd-feel", "hierfavg", "fedavg"])
def test_it_reaches_the_optimum_where_local_steps_stop(scheme: str) -> None:
    problem, best = heterogeneous()
    own = {"scheme": scheme, "averager": "metropolis"}
    plain = distance(problem, best, Schedule(3, 2, 2), 240, **own)
    mine = distance(problem, best, Schedule(3, 2, 2), 240, correction="two-level", **own)
    assert plain > 1e-2
    assert mine < 1e-6


@pytest.mark.parametrize("alpha", [1, 3])
def test_gamma_is_stable_below_the_bound_and_not_above_it(alpha: int) -> None:
    """The second coordinate is all but flat: disagreement there shrinks or grows."""
    problem, _ = quadratic(1e-3)
    network = problem.network.with_samples(problem.samples)
    limit = stable_gamma(network.averager("paper", alpha))
    assert limit < 1.9  # the paper's mixing overshoots, which exact averaging does not

    def spread(factor: float, steps: int) -> float:
        own = sdfeel.Correction(gamma=factor * limit, guard=False)
        schedule = Schedule(1, 1, alpha)
        result = trained(
            problem, schedule, steps, lr=0.3, correction=own, engine="vectorised",
            loss=torch.nn.functional.mse_loss,
        )  # fmt: skip
        return float(np.ptp([vector(model)[1] for model in result.server_models]))

    assert spread(0.9, 240) < spread(0.9, 60) / 2
    assert spread(1.15, 240) > 2 * spread(1.15, 60)


def radius(mixing: Matrix, gamma: float, decay: float, reach: float) -> float:
    """The spectral radius of a round in one direction, apart from the mean.

    decay is what is left of w after the local steps, reach by how much y moved it, over R:
    v = decay w - reach R y;  w <- T v,  R y <- R y + gamma (1 - T) v.
    """
    blocks = np.array(
        [
            [[t * decay, -t * reach], [gamma * (1 - t) * decay, 1 - gamma * (1 - t) * reach]]
            for t in mixing[mixing < 1 - 1e-9]
        ]
    )
    return float(np.abs(np.linalg.eigvals(blocks)).max(initial=0.0))


@settings(max_examples=100)
@given(
    networks(min_servers=2, max_servers=9, max_samples=200),
    st.sampled_from(["paper", "metropolis", "chebyshev"]),
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from([0.0, 1e-6, 1e-3, 0.03, 0.3, 0.99]),
)
def test_the_guarded_gamma_is_stable_and_the_bound_sharp(network, name, alpha, tau, steep) -> None:
    """Any network and averager, tau steps with rate x curvature `steep`; flat is 0."""
    averager = network.averager(name, alpha)
    limit = stable_gamma(averager)
    root = np.sqrt(averager.shares)
    mixing = np.linalg.eigvalsh(averager.operator / root[:, None] * root[None, :])
    decay = (1 - steep) ** tau
    reach = (1 - decay) / (steep * tau) if steep else 1.0
    assert radius(mixing, min(1.0, 0.9 * limit), decay, reach) < 1 + 1e-9
    if limit < 2 - 1e-9:
        assert radius(mixing, 1.15 * limit, 1.0, 1.0) > 1


@pytest.mark.parametrize(
    ("scheme", "said"), [("fedavg", "as SCAFFOLD does"), ("sd-feel", "where gamma* is")]
)
def test_a_run_says_what_its_correction_is(small: Problem, caplog, scheme, said) -> None:
    with caplog.at_level("INFO", logger="sdfeel"):
        trained(small, Schedule(2, 1, 1), 2, correction="two-level", scheme=scheme)
    assert said in caplog.text


class Halved(sdfeel.Correction):
    """Its clients learn half of what they could."""

    def learn(self, moved, move, rows, period):
        rows["z"] += (moved - move) / (2 * period.reach[0])


@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_a_correction_of_ones_own_learns_in_its_own_way(small: Problem, engine: str) -> None:
    """The fast engine adds up what ours learns, and must leave this one to itself."""
    plain, own, truth = (
        trained(small, Schedule(2, 2, 1), 8, correction=each, engine=which)
        for each, which in (("two-level", engine), (Halved(), engine), (Halved(), "reference"))
    )
    assert not np.allclose(vector(plain.model), vector(own.model), atol=1e-4)
    np.testing.assert_allclose(vector(own.model), vector(truth.model), atol=1e-6)


# What is refused


def test_a_gamma_above_the_guard_is_refused_unless_asked_for_by_name(small: Problem) -> None:
    network = small.network.with_samples(small.samples)
    limit = stable_gamma(network.averager("paper", 1))
    most = min(1.0, 0.9 * limit)
    for gamma, fine in ((most * (1 - 1e-6), True), (most, True), (most * (1 + 1e-6), False)):
        own = sdfeel.Correction(gamma=gamma)
        if fine:
            trained(small, Schedule(2, 1, 1), 2, correction=own)
            continue
        with pytest.raises(InputError, match=r"flat directions are stable iff gamma < gamma\*"):
            trained(small, Schedule(2, 1, 1), 2, correction=own)
    free = sdfeel.Correction(gamma=3.0, guard=False)
    trained(small, Schedule(2, 1, 1), 2, correction=free)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"optimizer": sdfeel.Adam()}, "correction"),
        ({"optimizer": sdfeel.SGD(clip=1.0)}, "correction"),
        ({"optimizer": sdfeel.Momentum(0.9, memory="keep")}, "correction"),
        ({"pace": "asynchronous"}, "correction"),
        ({"averaging_rule": "median"}, "correction"),
        ({"scheme": "fedavg", "correction": "servers"}, "correction"),
        ({"correction": "two-levels"}, "correction"),
        ({"correction": {"name": "two-levels", "gamma": 1.0}}, "correction.name"),
        ({"correction": 3}, "correction"),
    ],
)
def test_what_a_correction_cannot_work_with_is_named(small: Problem, options, field) -> None:
    with pytest.raises(InputError) as error:
        trained(small, Schedule(2, 1, 1), 2, **{"correction": "two-level", **options})
    assert error.value.field == field


def test_a_limit_bounds_the_corrected_gradient_and_nothing_else() -> None:
    """MTGC's program clips g + z + y: a loose limit changes nothing, a tight one sets lengths."""
    problem = convex(Network.build("path", 2, [1, 1]))
    schedule = Schedule(2, 1, 1)
    free = trained(problem, schedule, 8, correction="mtgc", averager="metropolis")
    loose = sdfeel.Correction("mtgc", limit=1e9)
    same = trained(problem, schedule, 8, correction=loose, averager="metropolis")
    for one, other in zip(free.model.parameters(), same.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    tight = sdfeel.Correction("mtgc", limit=1e-3)
    alone = convex(Network.build("path", 1, [1]))
    moved = trained(alone, Schedule(1, 1, 1), 1, correction=tight).model
    before = torch.cat([p.flatten() for p in alone.model.parameters()])
    after = torch.cat([p.flatten() for p in moved.parameters()])
    assert float((after - before).detach().norm()) == pytest.approx(1e-3 * rate(1), rel=1e-6)


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised", "fast"])
def test_engines_agree_on_a_limit(engine) -> None:
    problem = convex(Network.build("path", 2, [2, 1]))
    options = {"correction": sdfeel.Correction("mtgc", limit=0.05), "averager": "metropolis"}
    ours = trained(problem, Schedule(2, 2, 1), 8, **{**options, "engine": engine})
    usual = trained(problem, Schedule(2, 2, 1), 8, **options)
    for one, other in zip(ours.model.parameters(), usual.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
