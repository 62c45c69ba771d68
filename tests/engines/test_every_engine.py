"""One table of tests that every engine enters; the reference engine is the truth."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from worlds import Problem as World
from worlds import classification, vector

import sdfeel
from sdfeel import Network, Schedule
from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.codecs import TopK
from sdfeel.algorithm.methods.rates import Constant, Given
from sdfeel.data import ClientData
from sdfeel.engines import plain
from sdfeel.engines.choose import ENGINES, Unsupported
from sdfeel.engines.engine import Engine, Interrupted, Work
from sdfeel.engines.plain import new_row
from sdfeel.engines.problem import Problem, make_problem

pytestmark = [
    pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning"),
    pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad"),  # when evaluated
]

SAMPLES = (12, 5, 9, 20, 4, 7)
CLUSTERS = [[0, 3], [4, 1, 2], [5]]
names = pytest.mark.parametrize("name", sorted(ENGINES))


@dataclass
class Case:
    """A model and data that some engine may do in another way."""

    model: Callable[[], nn.Module]
    shape: tuple[int, ...] = (4,)
    dtype: torch.dtype = torch.float32
    batch_size: int = 6  # above some clients' data and below others': batches of several lengths
    loss: Callable[[Tensor, Tensor], Tensor] | None = None
    whole: bool = False  # inputs are whole numbers

    def world(self) -> World:
        rng = np.random.default_rng(1)
        inputs = [
            rng.integers(0, 5, (n, *self.shape))
            if self.whole
            else rng.normal(size=(n, *self.shape))
            for n in SAMPLES
        ]
        targets = [rng.integers(0, 3, n) for n in SAMPLES]
        if self.loss is functional.mse_loss:
            targets = [rng.normal(size=(n, 3)) for n in SAMPLES]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = self.model().to(self.dtype)
        if not self.whole:
            inputs = [x.astype(np.float32) for x in inputs]
        return World(Network(CLUSTERS, "path"), inputs, targets, model)


class Frozen(nn.Module):
    """A first layer that is not trained, and an activation written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)
        self.first.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.sin(self.first(x)))


class Tied(nn.Module):
    """One matrix used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(4, 4) / 2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(x @ self.weight) @ self.weight.T)


class Recomputed(nn.Module):
    """Activations that are computed again on the way back, which only `backward()` does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(checkpoint(torch.tanh, self.first(x), use_reentrant=True))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 3 * 3, 7),
        nn.ReLU(),
        nn.Linear(7, 3),
    )


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


CASES: dict[str, Case] = {
    "mlp": Case(mlp),
    "cnn": Case(cnn, (2, 8, 8)),
    "float64": Case(mlp, dtype=torch.float64),
    "full gradients": Case(mlp, dtype=torch.float64, batch_size=100),
    "one sample a batch": Case(mlp, batch_size=1),
    "squared error": Case(mlp, loss=functional.mse_loss),
    "a loss of one's own": Case(mlp, loss=lambda o, t: functional.cross_entropy(2 * o, t)),
    "batch norm": Case(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))),
    "cumulative batch norm": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3))
    ),
    "layer norm": Case(lambda: nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 3))),
    "frozen": Case(Frozen),
    "tied": Case(Tied),
    "recomputed": Case(Recomputed),
    "dropout": Case(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 3))),
    "embedding": Case(
        lambda: nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 3)), whole=True
    ),
}


@names
@pytest.mark.parametrize("case", CASES)
def test_many_steps_equal_the_reference(name: str, case: str) -> None:
    """Unequal clusters, absent clients and batches of several lengths, over 40 iterations."""
    if name == "reference":
        pytest.skip("it is the truth")
    own = CASES[case]
    world = own.world()

    def run(engine: str) -> sdfeel.Result:
        return sdfeel.train(
            world.model,
            world.datasets,
            network=world.network,
            schedule=Schedule(3, 2, 2),
            steps=40,
            lr=0.1,
            batch_size=own.batch_size,
            loss=own.loss,
            participation=0.6,
            seed=5,
            engine=engine,
            evaluate_every=7,
        )

    mine = run(name)
    if mine.engine != name:
        pytest.skip(mine.engine_reason)
    truth = run("reference")
    close = 1e-11 if own.dtype == torch.float64 else 3e-4
    assert np.abs(vector(truth.model) - vector(world.model)).max() > 0.01  # something was learned
    for one, two in zip(
        [mine.model, *mine.server_models], [truth.model, *truth.server_models], strict=True
    ):
        for key, value in one.state_dict().items():
            np.testing.assert_allclose(
                value.numpy(), two.state_dict()[key].numpy(), rtol=close, atol=close, err_msg=key
            )
    columns = ["train_loss", "batch_loss", "disagreement"]
    np.testing.assert_allclose(
        mine.history[columns], truth.history[columns], rtol=10 * close, atol=10 * close
    )
    assert mine.seconds == truth.seconds
    assert mine.client_steps == truth.client_steps


# Whole runs of every method


@st.composite
def methods(draw: st.DrawFn) -> dict[str, object]:
    """Settings that go together: rule, rate, correction and codecs of the three ways."""
    affine = draw(st.booleans(), "affine")
    plain = {"weight_decay": 0.01, "prox": draw(st.sampled_from([0.0, 0.2]))}
    if affine:
        momentum = {"momentum": 0.8, "nesterov": draw(st.booleans())}
        kinds = [sdfeel.SGD(**plain), sdfeel.Momentum(**momentum, **plain)]
        correction = draw(st.sampled_from([None, *sdfeel.CORRECTIONS]), "correction")
    else:
        kinds = [sdfeel.Adam(clip=0.5, **plain), sdfeel.AdamW(memory="keep")]
        kinds += [sdfeel.Momentum(0.9, memory="keep", clip=1.0)]
        correction = None
    all_ways = ["float32", "float16", "bfloat16", "int8", "int4"]
    parts = [*all_ways, TopK(5)]
    corrects = correction in ("two-level", "clients", "mtgc")
    ways = {"up": all_ways if corrects else parts, "down": parts, "between": all_ways}
    return {
        "optimizer": draw(st.sampled_from(kinds), "optimizer"),
        "lr": draw(st.sampled_from([0.05, sdfeel.Cosine(0.1, over=20, warmup=4)]), "lr"),
        "correction": correction,
        "codecs": {way: draw(st.sampled_from(own), way) for way, own in ways.items()},
        "participation": draw(st.sampled_from([1.0, 0.6]), "beta"),
        "schedule": draw(st.sampled_from([Schedule(3, 2, 2), Schedule(2, 1, 1)]), "schedule"),
        "averager": draw(st.sampled_from(["metropolis", "exact"]), "averager"),
    }


@pytest.mark.filterwarnings("ignore:codecs.up")
@names
@settings(max_examples=5)
@given(own=methods(), stop=st.integers(1, 17))
def test_whole_runs_equal_the_reference_and_go_on_bit_for_bit(
    name: str, own, stop: int, tmp_path_factory
) -> None:
    world = classification(SAMPLES, CLUSTERS, "path", hidden=5, dtype=torch.float64)
    world.model[1] = nn.ReLU()  # type: ignore[index]
    out = tmp_path_factory.mktemp("run")

    def run(engine: str, steps: int = 18, **more: object) -> sdfeel.Result:
        common = {"network": world.network, "batch_size": 6, "seed": 5, "evaluate_every": 7}
        both = common | own | more | {"engine": engine, "steps": steps}
        return sdfeel.train(world.model, world.datasets, **both)

    truth = run("reference")
    whole = run(name)
    for one, two in zip(
        [whole.model, *whole.server_models], [truth.model, *truth.server_models], strict=True
    ):
        np.testing.assert_allclose(vector(one), vector(two), rtol=0, atol=1e-9)
    run(name, stop, out=out)
    again = run(name, out=out, resume=True)
    np.testing.assert_array_equal(vector(again.model), vector(whole.model))
    assert again.seconds == whole.seconds == truth.seconds


# The interface, on one problem that every engine supports.

RULES: dict[str, sdfeel.Optimizer] = {
    "sgd": sdfeel.SGD(),
    "decay": sdfeel.SGD(weight_decay=0.03),
    "prox": sdfeel.SGD(prox=0.2),
    "momentum": sdfeel.Momentum(0.9),
    "nesterov": sdfeel.Momentum(0.8, nesterov=True, weight_decay=0.01, prox=0.1),
    "clip": sdfeel.SGD(clip=0.3),
    "clipped nesterov": sdfeel.Momentum(0.9, nesterov=True, clip=0.2, weight_decay=0.05),
    "adam": sdfeel.Adam(),
    "adam with all": sdfeel.Adam(beta1=0.8, beta2=0.95, weight_decay=0.02, prox=0.1, clip=0.4),
    "adamw": sdfeel.AdamW(weight_decay=0.1, prox=0.1),
}


def optimiser_of(rule: sdfeel.Optimizer, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """The one of torch that `rule` says it is."""
    own = {"lr": lr, "weight_decay": rule.weight_decay}
    if isinstance(rule, sdfeel.Adam):
        kind = torch.optim.AdamW if isinstance(rule, sdfeel.AdamW) else torch.optim.Adam
        return kind(model.parameters(), betas=(rule.beta1, rule.beta2), eps=rule.eps, **own)
    if isinstance(rule, sdfeel.Momentum):
        own |= {"momentum": rule.momentum, "nesterov": rule.nesterov}
    return torch.optim.SGD(model.parameters(), **own)


def make(
    dtype: torch.dtype = torch.float32,
    batch_size: int = 6,
    rule: str | sdfeel.Optimizer = "sgd",
    samples: tuple[int, ...] = SAMPLES,
) -> Problem:
    world = classification(samples, [list(range(len(samples)))], "path", hidden=5, dtype=dtype)
    world.model[1] = nn.ReLU()  # type: ignore[index]
    data = ClientData.from_datasets(world.datasets)
    return make_problem(
        world.model,
        data,
        batch_size=batch_size,
        seed=2,
        chain=Chain(RULES[rule] if isinstance(rule, str) else rule),
        rate=Constant(0.1),
    )


def build(name: str, problem: Problem) -> Engine:
    try:
        return ENGINES[name](problem)
    except Unsupported as reason:
        pytest.skip(str(reason))


def start_of(problem: Problem, clients: int) -> Tensor:
    return problem.layout.vector(problem.model).repeat(clients, 1)


def work(models: Tensor, clients: list[int], first: int, last: int, **more: Any) -> Work:
    """A period of these clients, each beginning with its row of `models`."""
    ones, each = np.ones(len(clients), dtype=np.int64), np.arange(len(clients))
    return Work(np.array(clients), first * ones, last * ones, (models.clone(), each), **more)


def kept_by(problem: Problem, models: Tensor) -> dict[str, Tensor]:
    """What clients remember between two periods, at its beginning."""
    start = models[:, : problem.layout.parameters]
    rows = problem.chain.rows.items()
    return {name: new_row(row, start) for name, row in rows if not row.new_each_period}


def trained(
    name: str, problem: Problem, clients: list[int], legs: list[tuple[int, int]]
) -> tuple[Tensor, np.ndarray, dict[str, Tensor]]:
    """Models, losses and memories after these iterations, a period each."""
    engine = build(name, problem)
    models = start_of(problem, len(clients))
    kept = kept_by(problem, models)
    losses = []
    try:
        for first, last in legs:
            losses.append(engine.train(work(models, clients, first, last, rows=kept), models))
    finally:
        engine.close()
    return models, np.hstack(losses), kept


EVERYONE = list(range(6))


@names
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_clients_below_at_and_above_the_batch_size_share_a_cluster(name: str, data) -> None:
    """A client that holds just as much as a batch draws nothing; those beside it do."""
    batch = data.draw(st.integers(1, 5), "batch")
    sizes = st.sampled_from([max(1, batch - 1), batch, batch + 1, 5 * batch])
    samples = tuple(data.draw(st.lists(sizes, min_size=2, max_size=6), "samples"))
    problem = make(torch.float64, batch, samples=samples)
    everyone = list(range(len(samples)))
    mine, losses, _ = trained(name, problem, everyone, [(1, 3)])
    truth, expected, _ = trained("reference", problem, everyone, [(1, 3)])
    np.testing.assert_allclose(mine.numpy(), truth.numpy(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-12)


def check_against_torch(name: str, rule: sdfeel.Optimizer, steps: int = 7) -> None:
    """Clip the gradient, pull towards the start, then a step of torch's optimiser."""
    problem = make(torch.float64, rule=rule)
    mine, losses, _ = trained(name, problem, EVERYONE, [(1, steps)])
    for client in EVERYONE:
        model = copy.deepcopy(problem.model).train()
        start = [p.detach().clone() for p in model.parameters()]
        optimiser = optimiser_of(rule, model, 0.1)
        for k in range(1, steps + 1):
            rows = torch.from_numpy(problem.batches(np.array([client]), np.array([k]))[0, 0])
            loss = functional.cross_entropy(
                model(problem.data.inputs[rows]), problem.data.targets[rows]
            )
            assert losses[client, k - 1] == pytest.approx(float(loss.detach()), abs=1e-12)
            optimiser.zero_grad()
            loss.backward()
            if rule.clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), rule.clip)
            for p, begun in zip(model.parameters(), start, strict=True):
                p.grad.add_(p.detach() - begun, alpha=rule.prox)
            optimiser.step()
        np.testing.assert_allclose(mine[client].numpy(), vector(model), rtol=0, atol=1e-12)


@names
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_is_that_of_torch_optim_step_for_step(name: str, rule: str) -> None:
    check_against_torch(name, RULES[rule])


extras = {
    "weight_decay": st.sampled_from([0.0, 0.04]),
    "prox": st.sampled_from([0.0, 0.3]),
    "clip": st.sampled_from([None, 1e-3, 0.3, 1e6]),
}
any_rule = st.one_of(
    st.builds(sdfeel.SGD, **extras),
    st.builds(sdfeel.Momentum, st.floats(0.01, 0.99), nesterov=st.booleans(), **extras),
    st.builds(sdfeel.Adam, st.floats(0, 0.99), st.floats(0.5, 0.9999), **extras),
    st.builds(sdfeel.AdamW, st.floats(0, 0.99), st.floats(0.5, 0.9999), **extras),
)


@settings(max_examples=25, deadline=None)
@given(any_rule)
def test_every_combination_is_that_of_torch_optim(rule: sdfeel.Optimizer) -> None:
    check_against_torch("reference", rule, steps=4)


@names
@pytest.mark.parametrize("rule", RULES)
def test_every_engine_carries_out_every_rule(name: str, rule: str) -> None:
    """And remembers the same from one period to the next."""
    problem = make(torch.float64, rule=replace(RULES[rule], memory="keep"))
    mine, _, memory = trained(name, problem, EVERYONE, [(1, 4), (5, 9)])
    truth, _, expected = trained("reference", problem, EVERYONE, [(1, 4), (5, 9)])
    np.testing.assert_allclose(mine.numpy(), truth.numpy(), rtol=0, atol=1e-11)
    for row, values in expected.items():
        np.testing.assert_allclose(memory[row].numpy(), values.numpy(), rtol=0, atol=1e-11)


@names
def test_a_rate_is_a_function_of_the_iteration(name: str) -> None:
    problem = replace(make(torch.float64), rate=Given(lambda k: 0.2 / k))
    mine, _, _ = trained(name, problem, EVERYONE, [(4, 9)])
    truth, _, _ = trained("reference", problem, EVERYONE, [(4, 6), (7, 9)])
    np.testing.assert_allclose(mine.numpy(), truth.numpy(), rtol=0, atol=1e-12)


@names
def test_a_shift_is_added_to_every_gradient(name: str) -> None:
    """What a correction is: z of each client and a part that its server gives to all."""
    problem = make(torch.float64, batch_size=100)
    corrected = replace(problem, chain=Chain(sdfeel.SGD(), (sdfeel.Correction(gamma=0.5),)))
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(6, problem.layout.parameters, generator=rng, dtype=torch.float64)
    common, of = z[:2] ** 2, np.array([0, 1, 1, 0, 1, 0])
    moved = []
    for own in (problem, corrected):
        engine = build(name, own)
        models = start_of(own, 6)
        rows = {"two-level.z": z.clone()} if own is corrected else {}
        shared = {"two-level.common": (common, of)} if own is corrected else {}
        engine.train(work(models, EVERYONE, 1, 1, rows=rows, shared=shared), models)
        engine.close()
        moved.append(models)
    wanted = moved[0] - 0.1 * (z + common[of])
    torch.testing.assert_close(moved[1], wanted, rtol=0, atol=1e-12)


@names
def test_clients_may_be_at_different_iterations(name: str) -> None:
    problem = make(torch.float64)
    engine = build(name, problem)
    models = start_of(problem, 3)
    first, last = np.array([1, 4, 4]), np.array([3, 4, 9])
    start = models.clone(), np.arange(3)
    losses = engine.train(Work(np.array([5, 0, 3]), first, last, start), models)
    engine.close()
    assert losses.shape == (3, 6)
    for row, client in enumerate((5, 0, 3)):
        legs = [(int(first[row]), int(last[row]))]
        alone, expected, _ = trained("reference", problem, [client], legs)
        torch.testing.assert_close(models[row], alone[0], rtol=0, atol=1e-12)
        made = last[row] - first[row] + 1
        np.testing.assert_allclose(losses[row, :made], expected[0], atol=1e-12)
        assert np.isnan(losses[row, made:]).all()


@names
def test_losses_are_those_before_each_update(name: str) -> None:
    problem = make()
    _, losses, _ = trained(name, problem, EVERYONE, [(1, 3)])
    assert losses.shape == (6, 3)
    for client in EVERYONE:
        rows = torch.from_numpy(problem.batches(np.array([client]), np.array([1]))[0, 0])
        with torch.no_grad():
            outputs = problem.model(problem.data.inputs[rows])
            expected = functional.cross_entropy(outputs, problem.data.targets[rows])
        assert losses[client, 0] == pytest.approx(float(expected), rel=1e-5)


@names
@pytest.mark.parametrize("rule", ["sgd", "momentum", "adam", "adamw"])
def test_in_how_many_calls_the_updates_come_changes_no_bit(name: str, rule: str) -> None:
    """Where memories are kept and nothing looks back at the model that a period began with."""
    problem = make(rule=replace(RULES[rule], memory="keep", prox=0.0))
    at_once, losses, _ = trained(name, problem, EVERYONE, [(1, 6)])
    in_parts, parts, _ = trained(name, problem, EVERYONE, [(1, 1), (2, 4), (5, 6)])
    np.testing.assert_array_equal(losses, parts)
    assert torch.equal(at_once, in_parts)


@names
def test_who_else_is_there_does_not_change_a_clients_update(name: str) -> None:
    problem = make()
    together, _, _ = trained(name, problem, EVERYONE, [(1, 4)])
    alone, _, _ = trained(name, problem, [3], [(1, 4)])
    torch.testing.assert_close(together[3], alone[0])


@names
def test_the_number_of_threads_changes_no_bit(name: str) -> None:
    before = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(trained(name, make(rule="momentum"), EVERYONE, [(1, 5)])[0])
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


@names
def test_predict_is_the_model_in_evaluation_mode(name: str) -> None:
    engine = build(name, make())
    inputs = torch.randn(1203, 4, generator=torch.Generator().manual_seed(0))
    other = copy.deepcopy(engine.problem.model).eval()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-0.5)
        expected = other(inputs)
    outputs = engine.predict(engine.problem.layout.vector(other), inputs)
    torch.testing.assert_close(outputs, expected)


@names
def test_a_loss_that_is_not_finite_comes_back_as_it_is(name: str) -> None:
    problem = make(batch_size=100)
    rows = slice(int(problem.data.offsets[4]), int(problem.data.offsets[5]))
    problem.data.inputs[rows] = torch.nan
    _, losses, _ = trained(name, problem, EVERYONE, [(1, 2)])
    assert np.isnan(losses[4]).all()
    assert np.isfinite(np.delete(losses, 4, axis=0)).all()


@names
def test_gradients_that_a_model_comes_with_are_not_added_to_its_own(name: str) -> None:
    """As after a `backward()` of the user's; a copy of a module brings its gradients along."""
    clean, used = make(), make()
    for parameter in used.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    expected, *_ = trained(name, clean, EVERYONE, [(1, 3)])
    found, *_ = trained(name, used, EVERYONE, [(1, 3)])
    assert torch.equal(found, expected)


@names
def test_the_problems_own_model_is_never_touched(name: str) -> None:
    problem = make()
    before = copy.deepcopy(problem.model.state_dict())
    engine = build(name, problem)
    models = start_of(problem, 6)
    engine.train(work(models, EVERYONE, 1, 3), models)
    engine.predict(models[0], problem.data.inputs)
    engine.close()
    for key, value in problem.model.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("long", [42, 43, 44])
def test_a_long_row_is_worked_on_where_it_lies(monkeypatch, rule: str, long: int) -> None:
    """43 numbers are below, at and above what is long; to the same bits."""
    problem = make(rule=rule)
    short, _, _ = trained("reference", problem, EVERYONE, [(1, 4)])
    assert problem.layout.parameters == 43
    monkeypatch.setattr(plain, "LONG", long)
    found, _, _ = trained("reference", problem, EVERYONE, [(1, 4)])
    assert torch.equal(short, found)


@names
def test_training_can_be_stopped(name: str) -> None:
    """By whoever asked for it: nothing that was handed in is changed then but `models`."""
    problem = make(rule=replace(RULES["momentum"], memory="keep"))
    engine = build(name, problem)
    models = start_of(problem, 6)
    kept = {row: values.clone() for row, values in kept_by(problem, models).items()}
    try:
        with pytest.raises(Interrupted):
            engine.train(work(models, EVERYONE, 1, 3, rows=kept, is_stopped=lambda: True), models)
    finally:
        engine.close()
