"""Theory and simulation agree where every constant is known exactly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quadratics import Quadratic, random_quadratic, simulate

from sdfeel.network import Network, weighted_norm
from sdfeel.theory.drift import ages, disagreement_eigenvalues
from sdfeel.theory.on_network import bound_on


@st.composite
def problems(draw):
    """A random network with unequal clusters and clients, and a random quadratic on it."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    servers = draw(st.integers(2, 6))
    graph = draw(st.sampled_from(["ring", "path", "star", "full"]))
    network = Network.build(graph, servers, [int(n) for n in rng.integers(1, 5, servers)])
    network = network.with_samples(rng.integers(1, 20, network.clients))
    scales = rng.choice([0.0, 1.0, 3.0], size=3)
    problem = random_quadratic(
        network, rng, dimension=3, inside=scales[0], between=scales[1], variance=float(scales[2])
    )
    return problem, rng


schedules = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))
averagers = st.sampled_from(["paper", "metropolis", "chebyshev", "finite-time", "all-reduce"])


@settings(max_examples=40, deadline=None)
@given(
    problems(),
    schedules,
    averagers,
    st.floats(0.05, 1.0),
    st.sampled_from(["literal", "corrected"]),
)
def test_the_bound_holds_wherever_its_conditions_do(made, schedule, averager, fraction, version):
    """Also for unequal clusters, all averagers, and the tightened constant with kappa's mean."""
    problem, rng = made
    tau1, tau2, alpha = schedule
    constants = problem.constants(worst=version == "literal")
    arguments = {"tau1": tau1, "tau2": tau2, "alpha": alpha, "averager": averager}
    edge = bound_on(problem.network, constants, lr=1e-6, iterations=1, version=version, **arguments)
    lr, iterations = fraction * edge.theorem.max_lr, 4 * tau1 * tau2
    found = bound_on(
        problem.network, constants, lr=lr, iterations=iterations, version=version, **arguments
    )
    trace = simulate(
        problem, found.averager.operator, tau1=tau1, tau2=tau2, lr=lr, iterations=iterations,
        rng=rng, repeats=16,
    )  # fmt: skip
    assert found.theorem.conditions_hold
    assert trace.gradient.mean() <= found.theorem.bound
    deviation = found.theorem.deviation
    lemma = deviation["noise"] + deviation["drift"] + deviation["per_J"] * trace.mean_step.mean()
    assert trace.deviation.mean() <= lemma + 1e-12


@settings(max_examples=30, deadline=None)
@given(problems(), st.integers(1, 4), averagers, st.integers(0, 2**32))
def test_disagreement_contracts_by_exactly_the_averager_s_contraction(made, alpha, name, seed):
    """In the weighted norm no models contract less, and some contract just that much."""
    network = made[0].network
    averager = network.averager(name, alpha)
    shares = network.shares.cluster
    error = averager.operator - shares[:, None]
    assert weighted_norm(error, shares) == pytest.approx(averager.contraction, abs=1e-9)
    models = np.random.default_rng(seed).normal(size=(4, network.servers))

    def disagreement(X):
        return np.sqrt(np.sum((X - (X @ shares)[:, None]) ** 2 * shares))

    after = disagreement(models @ averager.operator)
    assert after <= averager.contraction * disagreement(models) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("name", "alpha"), [("paper", 1), ("paper", 3), ("chebyshev", 2)])
def test_the_fitted_slope_of_disagreement_is_the_contraction(name, alpha):
    """Servers that start apart and have the same optimum: log disagreement falls on a line."""
    network = Network.build("ring", 6, [1, 4, 2, 3, 1, 2])
    averager = network.averager(name, alpha)
    shares = network.shares.cluster
    W = np.random.default_rng(1).normal(size=(3, 6))
    logs = [0.0]
    for _ in range(60):  # scaled back to 1 at each step: never near rounding
        W = (W - (W @ shares)[:, None]) @ averager.operator
        size = np.sqrt(np.sum(W**2 * shares))
        logs.append(logs[-1] + np.log(size))
        W /= size
    slope = np.polyfit(np.arange(30), logs[31:], 1)[0]
    assert np.exp(slope) == pytest.approx(averager.contraction, rel=1e-3)


def test_the_mean_squared_gradient_falls_as_one_over_k_until_the_noise():
    """The first term's order, by a fitted slope: -1 in log-log while nothing else matters."""
    network = Network.ring(4, 2)
    rng = np.random.default_rng(3)
    problem = random_quadratic(network, rng, inside=0, between=0, variance=0.0, condition=1.0)
    operator = network.averager("paper").operator
    trace = simulate(
        problem, operator, tau1=2, tau2=2, lr=0.05, iterations=3000, rng=rng, repeats=1
    )
    mean = np.cumsum(trace.gradient) / np.arange(1, 3001)
    points = np.unique(np.geomspace(300, 3000, 30).astype(int)) - 1
    assert np.polyfit(np.log(points + 1), np.log(mean[points]), 1)[0] == pytest.approx(-1, abs=0.02)


@pytest.mark.parametrize("part", ["inside", "between"])
def test_deviation_grows_with_the_square_of_its_own_period(part):
    """Fitted slopes: drift inside clusters goes as tau1^2, between clusters as (tau1 tau2)^2."""
    network = Network.ring(5, 4)
    rng = np.random.default_rng(5)
    scales = {"inside": 0.0, "between": 0.0} | {part: 1.0}
    problem = random_quadratic(network, rng, variance=0.0, **scales)
    operator = network.averager("all-reduce").operator

    def deviation(tau1, tau2):
        trace = simulate(
            problem, operator, tau1=tau1, tau2=tau2, lr=1e-5, iterations=3 * tau1 * tau2, rng=rng,
            repeats=1,
        )  # fmt: skip
        return trace.deviation.mean()

    long = np.array([8, 16, 32, 64])
    by_tau1 = np.polyfit(np.log(long), np.log([deviation(t, 1) for t in long]), 1)[0]
    assert by_tau1 == pytest.approx(2, abs=0.1)
    if part == "inside":
        assert deviation(8, 4) == pytest.approx(deviation(8, 1), rel=1e-2)
    else:
        assert deviation(8, 4) == pytest.approx(deviation(4, 8), rel=1e-2)


def _inside_only(variance: float) -> Quadratic:
    return random_quadratic(
        Network.ring(10, 5), np.random.default_rng(7), inside=1.0, between=0.0, variance=variance
    )


def test_the_bound_cannot_tell_tau1_from_tau2_but_the_deviation_differs_a_hundredfold():
    """Non-IIDness inside clusters, tau1 tau2 = 25: same bound, (1, 25) far better than (25, 1)."""
    problem = _inside_only(0.0)
    problem = _inside_only(sum(problem.kappa_split) / 4)
    averager = problem.network.averager("paper")
    found = [
        simulate(
            problem, averager.operator, tau1=tau1, tau2=tau2, lr=1e-3, iterations=1000,
            rng=np.random.default_rng(0),
        ).deviation[250:].mean()
        for tau1, tau2 in ((1, 25), (25, 1))
    ]  # fmt: skip
    bounds = [
        bound_on(problem.network, problem.constants(), tau1=a, tau2=b, lr=1e-6, iterations=9)
        for a, b in ((1, 25), (25, 1))
    ]
    assert bounds[0].theorem.bound == bounds[1].theorem.bound
    assert found[1] / found[0] > 100


@settings(max_examples=25, deadline=None)
@given(problems(), st.integers(1, 5), st.integers(1, 4))
def test_the_drift_formulas_are_exact_when_servers_agree_fully(made, tau1, tau2):
    """lambda = 0 leaves nothing unknown: S_in and S_between against the simulation."""
    problem, rng = made
    quiet = Quadratic(problem.network, problem.A, problem.centres, 0.0, problem.start)
    operator = problem.network.averager("exact").operator
    trace = simulate(
        quiet, operator, tau1=tau1, tau2=tau2, lr=1e-7, iterations=2 * tau1 * tau2, rng=rng,
        repeats=1,
    )  # fmt: skip
    found = ages(tau1, tau2, np.zeros(problem.network.servers - 1), problem.network.shares)
    expected = found.deviation(1e-7, *problem.kappa_split)
    assert trace.deviation.mean() == pytest.approx(expected, rel=1e-3, abs=1e-26)


def test_the_drift_formulas_follow_the_averager_s_eigenvalues_and_noise():
    """Averaged over random drifts, for an averager that leaves disagreement behind."""
    network = Network.ring(6, 3)
    averager = network.averager("paper")
    found = ages(3, 2, disagreement_eigenvalues(averager), network.shares)
    ratios = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        problem = random_quadratic(
            network, rng, dimension=40, inside=1.0, between=1.0, variance=4.0
        )
        trace = simulate(
            problem, averager.operator, tau1=3, tau2=2, lr=1e-5, iterations=120, rng=rng, repeats=4
        )
        expected = found.deviation(1e-5, *problem.kappa_split, problem.variance)
        ratios.append(trace.deviation[60:].mean() / expected)
    assert np.mean(ratios) == pytest.approx(1, abs=0.05)


@settings(max_examples=25, deadline=None)
@given(problems(), st.sampled_from([0.3, 0.5, 0.8]), st.integers(1, 4), st.floats(0.1, 1.0))
def test_the_participation_heuristic_agrees_with_simulation(made, beta, tau1, fraction):
    """Not a theorem: no counterexample among random problems, which is all that is claimed."""
    problem, rng = made
    constants = problem.constants()
    arguments = {"tau1": tau1, "tau2": 2, "beta": beta}
    edge = bound_on(problem.network, constants, lr=1e-6, iterations=1, **arguments)
    lr, iterations = fraction * edge.theorem.max_lr, 20 * tau1
    found = bound_on(problem.network, constants, lr=lr, iterations=iterations, **arguments)
    trace = simulate(
        problem, found.averager.operator, tau1=tau1, tau2=2, lr=lr, iterations=iterations, rng=rng,
        repeats=16, beta=beta,
    )  # fmt: skip
    assert trace.gradient.mean() <= found.theorem.bound


def test_kappa_s_two_parts_add_up_and_mean_what_they_say():
    problem = _inside_only(0.0)
    inside, between = problem.kappa_split
    assert between == pytest.approx(0, abs=1e-20)
    total = np.sum(problem.network.shares.client * np.sum(problem.drifts**2, axis=0))
    assert inside + between == pytest.approx(total)
