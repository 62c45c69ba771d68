"""The methods of examples/methods against their published formulas, written out in numpy.

In every engine, resumed, with absent clients and, where their needs allow it, without rounds.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds import Matrix, Problem, classification, gradients, paper_matrix, vector

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.algorithm.participation import Participation
from sdfeel.engines.choose import ENGINES

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "methods"
CLUSTERS = [[0, 3], [4, 1, 2], [5]]
SAMPLES = (6, 5, 3, 8, 4, 7)
SCHEDULE, STEPS, SEED = Schedule(3, 2, 2), 24, 3
engines = pytest.mark.parametrize("engine", sorted(ENGINES))


def example(name: str) -> Any:
    """A file of examples/methods as a module."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="module")
def world() -> Problem:
    return classification(SAMPLES, CLUSTERS, "path", dtype=torch.float64)


def rate(k: int) -> float:
    return 0.3 / (1 + k / 10)


def train(world: Problem, engine: str = "reference", **options: Any) -> sdfeel.Result:
    given = {
        "network": world.network, "schedule": SCHEDULE, "steps": STEPS, "lr": rate, "seed": SEED,
        "batch_size": 100, "engine": engine, "profile": "counted", **options,
    }  # fmt: skip
    return sdfeel.train(world.model, world.datasets, **given)


def servers_of(result: sdfeel.Result) -> Matrix:
    return result.servers.numpy()


class ByHand:
    """Algorithm 1 with absent clients; a subclass has the formulas of a method."""

    def __init__(self, world: Problem, beta: float = 1.0) -> None:
        self.world, self.gradients, self.w0 = world, gradients(world), vector(world.model)
        self.present = Participation(6, SEED, beta).present
        self.samples = np.array(SAMPLES, dtype=float)
        self.mt = np.array([self.samples[own].sum() for own in CLUSTERS]) / self.samples.sum()
        self.servers = np.stack([self.w0] * 3)
        self.clients = {name: np.zeros((6, len(self.w0))) for name in ("a", "b")}
        self.of_servers = np.zeros((3, len(self.w0)))

    def gradient(self, i: int, d: int, w: Matrix, begun: Matrix, k: int) -> Matrix:
        return self.gradients[i](w)

    def mean(self, models: Matrix, shares: Matrix, begun: Matrix, reach: Matrix) -> Matrix:
        return shares @ models

    def learn(self, i: int, d: int, moved: Matrix, reach: float) -> None:
        pass

    def take(self, d: int, begun: Matrix, mean: Matrix, here: list[int], reach: float) -> Matrix:
        return mean

    def steps_of(self, first: int) -> range:
        return range(first, first + SCHEDULE.tau1)

    def run(self, steps: int = STEPS) -> Matrix:
        for first in range(1, steps + 1, SCHEDULE.tau1):
            there = self.present((first - 1) // SCHEDULE.tau1)
            reach = sum(rate(k) for k in self.steps_of(first))
            for d, members in enumerate(CLUSTERS):
                here = [i for i in members if there[i]]
                if not here:
                    continue
                begun = self.servers[d].copy()
                models = []
                for i in here:
                    w = begun.copy()
                    for k in self.steps_of(first):
                        w = w - rate(k) * self.gradient(i, d, w, begun, k)
                    models.append(w)
                shares = self.samples[here] / self.samples[here].sum()
                reaches = np.full(len(here), reach)
                mean = self.mean(np.stack(models), shares, begun, reaches)
                for i, w in zip(here, models, strict=True):
                    self.learn(i, d, w - begun, reach)
                self.servers[d] = self.take(d, begun, mean, here, reach)
            if (first + SCHEDULE.tau1 - 1) % SCHEDULE.tau == 0:
                P = np.linalg.matrix_power(self.mixing, SCHEDULE.alpha)
                self.servers = (self.servers.T @ P).T
        return self.servers

    @property
    def mixing(self) -> Matrix:
        return paper_matrix(self.world.network.graph, self.mt)


class FedDyn(ByHand):
    """Acar et al., Algorithm 1, with the weights of the data."""

    alpha = 0.2

    def gradient(self, i, d, w, begun, k):
        return self.gradients[i](w) + self.alpha * (w - begun) - self.clients["a"][i]

    def learn(self, i, d, moved, reach):
        self.clients["a"][i] -= self.alpha * moved

    def take(self, d, begun, mean, here, reach):
        self.of_servers[d] -= self.alpha * len(here) / len(CLUSTERS[d]) * (mean - begun)
        return mean - self.of_servers[d] / self.alpha


class Scaffold(ByHand):
    """Karimireddy et al., option II: here the mean change of c_i is summed up as it is written."""

    eta = 0.8

    def gradient(self, i, d, w, begun, k):
        return self.gradients[i](w) - self.clients["a"][i] + self.of_servers[d]

    def learn(self, i, d, moved, reach):
        self.clients["b"][i] = -self.of_servers[d] - moved / reach  # c_i+ - c_i
        self.clients["a"][i] += self.clients["b"][i]

    def take(self, d, begun, mean, here, reach):
        cluster = self.samples[CLUSTERS[d]].sum()
        weights = self.samples[here] / cluster
        self.of_servers[d] += weights @ self.clients["b"][here]
        return begun + self.eta * (mean - begun)


class Ditto(ByHand):
    """Li et al., Algorithm 1: personal models beside those of FedAvg."""

    factor = 0.5

    def __init__(self, world, beta=1.0):
        super().__init__(world, beta)
        self.personal = np.stack([self.w0] * 6)

    def gradient(self, i, d, w, begun, k):
        v = self.personal[i]
        v -= rate(k) * (self.gradients[i](v) + self.factor * (v - begun))
        return self.gradients[i](w)


class Factors(ByHand):
    factors = (1.0, 0.5, 0.5, 1.0, 0.5, 2.0)

    def gradient(self, i, d, w, begun, k):
        return self.factors[i] * self.gradients[i](w)


class Normalised(ByHand):
    def gradient(self, i, d, w, begun, k):
        g = self.gradients[i](w)
        return g / np.linalg.norm(g)


class Lazy(ByHand):
    @property
    def mixing(self):
        """On the path 0-1-2: half of Metropolis."""
        m, P = self.mt, np.eye(3)
        for a, b in ((0, 1), (1, 2)):
            flow = min(m[a] / (1 + (a == 1) + 1), m[b] / (1 + (b == 1) + 1)) / 2
            for end, far in ((a, b), (b, a)):
                P[far, end] += flow / m[end]
                P[end, end] -= flow / m[end]
        return P


METHODS: dict[str, tuple[type[ByHand], Callable[[], dict[str, Any]]]] = {
    "feddyn": (FedDyn, lambda: {"methods": [example("feddyn").FedDyn(0.2)]}),
    "scaffold": (Scaffold, lambda: {"methods": [example("scaffold").Scaffold(0.8)]}),
    "ditto": (Ditto, lambda: {"methods": [example("ditto").Ditto(0.5)]}),
    "rate_per_client": (
        Factors,
        lambda: {
            "methods": [example("rate_per_client").by_cluster(CLUSTERS, (1.0, 0.5, 2.0))],
        },
    ),
    "normalised": (Normalised, lambda: {"methods": [example("normalised").Normalised()]}),
    "lazy_averager": (Lazy, lambda: {"averager": example("lazy_averager").lazy}),
}
names = pytest.mark.parametrize("name", METHODS)


@pytest.mark.parametrize("beta", [1.0, 0.6])
@names
def test_a_method_is_its_published_formula(world: Problem, name: str, beta: float) -> None:
    by_hand, options = METHODS[name]
    result = train(world, participation=beta, **options())
    expected = by_hand(world, beta).run()
    plain = ByHand(world, beta).run()
    np.testing.assert_allclose(servers_of(result), expected, rtol=0, atol=1e-10)
    assert (np.abs(expected - plain).max() > 1e-3) == (name != "ditto")  # which only looks on


@engines
@names
def test_every_engine_carries_it_out(world: Problem, name: str, engine: str) -> None:
    _, options = METHODS[name]
    truth = train(world, participation=0.6, **options())
    mine = train(world, engine, participation=0.6, **options())
    np.testing.assert_allclose(servers_of(mine), servers_of(truth), rtol=0, atol=1e-10)
    compiled = name in ("feddyn", "scaffold", "lazy_averager")
    if engine == "fast":
        assert (mine.engine == "fast") == compiled, mine.engine_reason


@names
def test_a_resumed_run_is_the_same(world: Problem, name: str, tmp_path: Path) -> None:
    """Bit for bit, with all that clients and servers remember."""
    _, options = METHODS[name]
    own = {"participation": 0.6, **options()}
    whole = train(world, **own)
    train(world, **own, steps=11, out=tmp_path)
    again = train(world, **own, out=tmp_path, resume=True)
    np.testing.assert_array_equal(servers_of(again), servers_of(whole))
    assert again.history.equals(whole.history)


def test_fednova_brings_moves_to_one_length(world: Problem) -> None:
    """In rounds all make equal steps, so it is the mean; then of clients that do not, by hand."""
    FedNova = example("fednova").FedNova
    plain, nova = train(world), train(world, methods=[FedNova()])
    np.testing.assert_allclose(servers_of(nova), servers_of(plain), rtol=0, atol=1e-12)
    rng = np.random.default_rng(0)
    models, held, shares = rng.normal(size=(3, 5)), rng.normal(size=5), np.array([0.2, 0.3, 0.5])

    class Period:
        reach = np.array([1.0, 2.0, 4.0])

    expected = held + (shares @ Period.reach) * sum(
        p * (w - held) / a for p, w, a in zip(shares, models, Period.reach, strict=True)
    )
    got = FedNova().combine(models, shares, held, {}, Period())
    np.testing.assert_allclose(got, expected)


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised"])
def test_personal_models_are_in_the_history(world: Problem, engine: str) -> None:
    """Those of Ditto: the mean over clients, weighted by their data, on their own data."""
    result = train(world, engine, **METHODS["ditto"][1](), test=world.datasets[0])
    by_hand = Ditto(world)
    by_hand.run()
    losses, accuracies = [], []
    for i, (x, y) in enumerate(zip(world.inputs, world.targets, strict=True)):
        w = torch.from_numpy(by_hand.personal[i])
        outputs = torch.from_numpy(x).double() @ w[:12].view(3, 4).T + w[12:]
        targets = torch.from_numpy(y)
        losses.append(float(torch.nn.functional.cross_entropy(outputs, targets)))
        accuracies.append(float((outputs.argmax(1) == targets).double().mean()))
    shares, last = np.array(SAMPLES) / sum(SAMPLES), result.history.iloc[-1]
    assert last["personal_train_loss"] == pytest.approx(shares @ losses)
    assert last["personal_train_accuracy"] == pytest.approx(shares @ accuracies)
    assert last["personal_train_loss"] < last["train_loss"]
    assert {"personal_test_loss", "personal_test_accuracy"} <= set(result.history)


def test_what_needs_rounds_says_so(world: Problem) -> None:
    for name in ("scaffold", "fednova"):
        method = getattr(example(name), name.capitalize().replace("nova", "Nova"))()
        with pytest.raises(InputError, match=rf"{name}.*needs rounds.*Asynchronous"):
            train(world, methods=[method], pace="asynchronous")
    with pytest.raises(InputError, match=r"needs.*affine"):
        train(world, methods=[example("scaffold").Scaffold()], optimizer="adam")


@pytest.mark.parametrize("name", ["feddyn", "ditto", "rate_per_client", "normalised"])
@pytest.mark.parametrize("engine", ["loop", "vectorised", "fast"])
def test_what_needs_no_rounds_works_without(world: Problem, name: str, engine: str) -> None:
    """All engines agree; with equal devices it is the run in rounds."""
    own = {"pace": "asynchronous", **METHODS[name][1]()}
    truth = train(world, profile="paper-h10", **own)
    mine = train(world, engine, profile="paper-h10", **own)
    np.testing.assert_allclose(servers_of(mine), servers_of(truth), rtol=0, atol=1e-10)
    alike = train(world, engine, profile="paper", **own)
    rounds = train(world, engine, profile="paper", **(own | {"pace": "synchronous"}))
    np.testing.assert_allclose(servers_of(alike), servers_of(rounds), rtol=0, atol=1e-12)


def test_a_schedule_of_functions_trains_as_one_of_numbers_does_round_by_round(
    world: Problem,
) -> None:
    schedule = example("changing_schedule").schedule(warm=2)
    result = train(world, schedule=schedule, steps=2 * 20 + 3 * 2, evaluate_every=1)
    ends = [10, 20, 30, 40, 42, 44, 46]
    assert result.history["iteration"].tolist() == [0, *ends]
    by_hand = ByHand(world)
    for first, last in zip([1, *(k + 1 for k in ends)], ends, strict=False):
        for d, members in enumerate(CLUSTERS):
            models = []
            for i in members:
                w = by_hand.servers[d]
                for k in range(first, last + 1):
                    w = w - rate(k) * by_hand.gradients[i](w)
                models.append(w)
            own = by_hand.samples[members]
            by_hand.servers[d] = own / own.sum() @ np.stack(models)
        if last not in (10, 30):
            alpha = 1 if last <= 40 else 5
            P = np.linalg.matrix_power(by_hand.mixing, alpha)
            by_hand.servers = (by_hand.servers.T @ P).T
    np.testing.assert_allclose(servers_of(result), by_hand.servers, rtol=0, atol=1e-10)


def test_random_matchings_bring_servers_together() -> None:
    own = classification([5] * 8, [[i] for i in range(8)], "ring", dtype=torch.float64)
    network = example("random_matchings").matchings(own.network, seed=1)
    assert not any(network.at(number).graph.degree[d] > 1 for number in range(5) for d in range(8))
    options = {"network": network, "schedule": Schedule(1, 1, 1), "lr": 1e-9, "steps": 60}
    start = torch.randn(8, 15, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    operator = np.eye(8)
    for number in range(60):
        operator = operator @ network.at(number).averager("paper", 1).operator
    mixed = start.numpy().T @ operator
    assert np.abs(mixed - mixed.mean(axis=1, keepdims=True)).max() < 1e-2
    assert train(own, **options).iterations == 60


def test_the_examples_are_short_and_use_public_names_only() -> None:
    for path in EXAMPLES.glob("*.py"):
        lines = path.read_text().splitlines()
        assert len(lines) <= 60, path.name
        for line in lines:
            if line.startswith("from sdfeel"):
                assert line.startswith("from sdfeel import "), f"{path.name}: {line}"
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        *METHODS, "fednova", "changing_schedule", "random_matchings",
    }  # fmt: skip
