"""The columns of an algorithm: rules, rates, codecs, paces and averagers, by name and one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from algorithms import algorithm_of, clients_of
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import InputError, Network, Schedule, load_profile
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.algorithm.methods.codecs import CODECS
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS
from sdfeel.network import Averager, build_averager, metropolis_matrix

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

PAPER = load_profile("paper")


def train(problem: Problem, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "schedule": Schedule(3, 2, 2), "steps": 24, "lr": 0.1}
    own |= {"batch_size": 4, "evaluate_every": 6}
    if "trainers" not in options:
        own["engine"] = "reference"
    return sdfeel.train(problem.model, problem.datasets, **{**own, **options})


def algorithm(network: Network | None = None, profile=PAPER, **options: object) -> Algorithm:
    return algorithm_of(network, profile, **options)


# Rules


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised", "fast"])
@pytest.mark.parametrize("rule", [sdfeel.SGD(memory="keep"), sdfeel.Momentum(0.0)])
def test_with_every_extra_at_0_a_rule_is_plain_sgd_bit_for_bit(small, rule, engine) -> None:
    small.model = torch.nn.Linear(4, 3)  # which every engine takes
    plain, own = train(small, engine=engine), train(small, optimizer=rule, engine=engine)
    assert own.engine == engine
    np.testing.assert_array_equal(vector(own.model), vector(plain.model))


@pytest.mark.parametrize("memory", ["reset", "keep"])
@pytest.mark.parametrize("rule", ["momentum", "adam", "adamw"])
def test_what_a_client_remembers_is_of_its_period_or_of_the_run(rule, memory) -> None:
    """One client alone: kept, it is one optimiser of torch; else one for each period."""
    model = classification((12,), [[0]], dtype=torch.float64)
    own = OPTIMIZERS[rule](memory=memory)
    options = {"lr": 0.05, "batch_size": 100, "schedule": Schedule(3, 1, 1), "steps": 12}
    mine = train(model, optimizer=own, **options)
    x, y = (torch.from_numpy(part[0]) for part in (model.inputs, model.targets))
    kinds = {"momentum": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    more = {"momentum": 0.9} if rule == "momentum" else {"weight_decay": own.weight_decay}
    for k in range(12):
        if k == 0 or (memory == "reset" and k % 3 == 0):
            optimiser = kinds[rule](model.model.parameters(), lr=0.05, **more)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model.model(x.double()), y).backward()
        optimiser.step()
    np.testing.assert_allclose(vector(mine.model), vector(model.model), rtol=0, atol=1e-12)


def test_what_compiled_code_cannot_do_falls_back_and_says_why(small) -> None:
    small.model = torch.nn.Linear(4, 3)
    result = train(small, optimizer=sdfeel.Adam(eps=0.0), engine="fast")
    assert result.engine == "vectorised"
    assert "eps" in result.engine_reason


@pytest.mark.parametrize("rule", OPTIMIZERS)
@pytest.mark.parametrize("memory", ["reset", "keep"])
def test_a_resumed_run_remembers(small: Problem, tmp_path, rule: str, memory: str) -> None:
    """Absent clients keep what they remember; it ended before with a shorter period."""
    own = {"optimizer": OPTIMIZERS[rule](memory=memory, clip=0.5), "participation": 0.6}
    whole = train(small, **own)
    train(small, **own, steps=10, out=tmp_path)
    again = train(small, **own, out=tmp_path, resume=True)
    np.testing.assert_array_equal(vector(whole.model), vector(again.model))


def test_a_rule_of_ones_own_that_is_not_affine_falls_back_and_says_why(small: Problem) -> None:
    @dataclass(frozen=True)
    class Signs(sdfeel.Optimizer):
        def gradient(self, g, w, rows, step):
            return torch.sign(g)

    result = train(small, optimizer=Signs(), engine="fast")
    assert result.engine == "vectorised"
    assert "not affine" in result.engine_reason
    truth = train(small, optimizer=Signs())
    np.testing.assert_allclose(vector(result.model), vector(truth.model), atol=1e-5)


def test_what_a_rule_keeps_is_found_by_its_name(small: Problem) -> None:
    @dataclass(frozen=True)
    class Counting(sdfeel.Optimizer):
        keeps: ClassVar[dict[str, sdfeel.Row]] = {
            "first": sdfeel.Row(), "count": sdfeel.Row(width=1, first=2.0)
        }  # fmt: skip

        def gradient(self, g, w, rows, step):
            rows["first"] += (rows["count"] == 2) * g
            rows["count"] += 1
            return rows["first"]

    for engine in ("loop", "vectorised"):
        mine = train(small, optimizer=Counting(), engine=engine)
        truth = train(small, optimizer=Counting())
        np.testing.assert_allclose(vector(mine.model), vector(truth.model), atol=1e-5)


class InPlace(sdfeel.Optimizer):
    def gradient(self, g, w, rows, step):
        w.sub_(g)


class Lumped(sdfeel.Optimizer):
    """The norm of all clients' gradients together: it would depend on who is trained beside."""

    def gradient(self, g, w, rows, step):
        return g / g.norm()


class Doubled(sdfeel.Optimizer):
    affine = sdfeel.Affine()

    def gradient(self, g, w, rows, step):
        return 2 * g


class Forgetful(sdfeel.Optimizer):
    def gradient(self, g, w, rows, step):
        return rows["velocity"].add_(g)


@pytest.mark.parametrize(
    ("rule", "remedy"),
    [
        (InPlace(), "must return a tensor"),
        (Lumped(), "go over dim=-1"),
        (Doubled(), "`affine` is not what its `gradient` does"),
        (Forgetful(), "does not name in `rows`"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_before_any_training(small, rule, remedy) -> None:
    with pytest.raises(InputError, match=remedy) as error:
        train(small, optimizer=rule)
    assert error.value.field == "optimizer"


def test_a_run_does_not_go_on_with_another_function_of_the_same_name(small, tmp_path) -> None:
    """Two lambdas are called the same."""
    own = {"lr": lambda k: 0.1, "averaging_rule": lambda models, weights, before: weights @ models}
    other = {"lr": lambda k: 0.9, "averaging_rule": lambda models, weights, before: models[0]}
    train(small, **own, out=tmp_path, steps=6)
    for what in own:
        with pytest.raises(InputError, match="another run"):
            train(small, **(own | {what: other[what]}), out=tmp_path, resume=True)
    train(small, **own, out=tmp_path, resume=True)


def test_a_rate_that_falls_is_seen_by_a_resumed_run(small: Problem, tmp_path) -> None:
    def rate(k: int) -> float:
        return 0.2 / (1 + k / 5)

    whole = train(small, lr=rate)
    train(small, lr=rate, steps=10, out=tmp_path)
    again = train(small, lr=rate, out=tmp_path, resume=True)
    np.testing.assert_array_equal(vector(whole.model), vector(again.model))
    assert not np.array_equal(vector(whole.model), vector(train(small, lr=0.2).model))


# Codecs


def test_a_codec_or_rule_that_gives_back_something_else_is_named(small: Problem) -> None:
    class Short(CODECS["float16"]):
        def decode(self, message, like):
            return message["values"][:, :1].astype(np.float32)

    with pytest.raises(InputError, match=r"codecs.up.*\[6, 1\]"):
        train(small, codecs={"up": Short()})
    for rule in (lambda m, w, b: m.sum(), lambda m, w, b: None, lambda m, w, b: m[:, :2]):
        with pytest.raises(InputError, match="averaging_rule"):
            train(small, averaging_rule=rule)
    by_name = train(small, averaging_rule="median")
    by_object = train(small, averaging_rule=Rule("median"))
    np.testing.assert_array_equal(vector(by_name.model), vector(by_object.model))


# Paces


def slow_one(network: Network) -> Algorithm:
    """Client 2 computes ten times as slowly as the others."""
    cpu = tuple(1e9 if client == 2 else 10e9 for client in range(network.clients))
    profile = sdfeel.LatencyProfile("slow", 138.4e6, cpu, 5e6, 50e6, 5e6, 2.5e6)
    return algorithm(network, profile, schedule=Schedule(2, 1, 1), pace=sdfeel.Deadline(0.2))


def test_a_deadline_leaves_out_who_is_not_done() -> None:
    own = slow_one(Network.ring(3, 2))
    event = next(own.events())
    assert clients_of(event) == [0, 1, 3, 4, 5]
    spans = sum(event.spans[name] for name in ("compute", "upload", "slack"))
    assert spans == pytest.approx(0.2)  # periods of one length
    assert round_cost(own).total == pytest.approx(0.2 + 0.0139776)


@pytest.mark.parametrize("late", [False, True])
def test_a_deadline_may_be_a_bound(late: bool) -> None:
    """A period ends once all have come; or, where somebody is late, at the bound."""
    slow = slow_one(Network.ring(3, 2)).uplink.latencies
    cpu = tuple(1e9 if late and client == 2 else 10e9 for client in range(6))
    profile = sdfeel.LatencyProfile("slow", 138.4e6, cpu, 5e6, 50e6, 5e6, 2.5e6)
    pace = sdfeel.Deadline(0.2, ends_early=True)
    own = algorithm(Network.ring(3, 2), profile, schedule=Schedule(2, 1, 1), pace=pace)
    event = next(own.events())
    length = sum(event.spans[name] for name in ("compute", "upload", "slack"))
    assert (2 in clients_of(event)) != late
    needed = 2 * slow.t_cmp[0] + slow.t_ct_sr[0]
    assert length == pytest.approx(needed)  # nobody waits for a client that is left out


def test_a_run_with_a_deadline_is_that_of_those_who_are_in_time(small: Problem) -> None:
    """The slow client counts as absent: as if its cluster did not have it."""
    cpu = tuple(1e7 if client == 3 else 10e9 for client in range(6))
    profile = sdfeel.LatencyProfile("slow", 138.4e6, cpu, 5e6, 50e6, 5e6, 2.5e6)
    late = train(small, profile=profile, pace=sdfeel.Deadline(seconds=0.2))
    assert late.client_steps == 5 * 24
    assert late.seconds == pytest.approx(8 * 0.2 + 4 * 2 * 32 * 15 / 50e6)
    everyone = train(small, profile=profile, pace="synchronous")
    assert everyone.client_steps == 6 * 24
    assert everyone.seconds > 24 * 13.84


@pytest.mark.parametrize("seconds", [0.167456 - 1e-6, 0.167456, 0.167456 + 1e-6])
def test_at_the_deadline_is_in_time(seconds: float) -> None:
    """Two steps and an upload of the paper's profile take .167456 s."""
    if seconds < 0.167456:
        with pytest.raises(InputError, match=r"nobody is done.*0\.1675 s at the fastest"):
            algorithm(schedule=Schedule(2, 1, 1), pace=sdfeel.Deadline(seconds))
    else:
        own = algorithm(schedule=Schedule(2, 1, 1), pace=sdfeel.Deadline(seconds))
        assert len(clients_of(next(own.events()))) == 50


def test_a_cluster_that_is_never_in_time_is_told() -> None:
    cpu = tuple(1e9 if client < 2 else 10e9 for client in range(6))
    profile = sdfeel.LatencyProfile("slow", 138.4e6, cpu, 5e6, 50e6, 5e6, 2.5e6)
    with pytest.warns(UserWarning, match="server 0"):
        algorithm(Network.ring(3, 2), profile, pace=sdfeel.Deadline(0.2))


# Averagers


def halfway(graph, shares, alpha) -> Averager:
    """A lazy mixing: half of the paper's step."""
    paper = build_averager("paper", graph, shares, alpha)
    steps = tuple(step / 2 for step in paper.steps)
    return Averager("halfway", "neighbours", shares, paper.generator, steps, 0.9, alpha)


def test_an_averager_may_be_a_function_or_an_object(small: Problem) -> None:
    network = small.network.with_samples(small.samples)
    by_function = train(small, averager=halfway)
    built = halfway(network.graph, network.shares.cluster, 2)
    by_object = train(small, averager=built)
    np.testing.assert_array_equal(vector(by_function.model), vector(by_object.model))
    assert not np.array_equal(vector(by_function.model), vector(train(small).model))


def test_an_averager_for_other_clusters_or_that_moves_the_mean_is_refused(small: Problem) -> None:
    with pytest.raises(InputError, match="another size"):
        train(small, averager=small.network.averager("chebyshev", 2))

    def drifting(graph, shares, alpha):
        A = np.eye(len(shares)) - 0.5
        return Averager("drifting", "neighbours", shares, A, (1.0,), 0.5, 1.0)

    with pytest.raises(InputError, match="moves the weighted mean"):
        train(small, averager=drifting)
    network = small.network.with_samples(small.samples)
    full = Network(network.clusters, "full", small.samples)
    with pytest.raises(InputError, match="a link 0-2 that the network does not have"):
        train(small, averager=full.averager("paper", 2))
    with pytest.raises(InputError, match="averager = 3"):
        train(small, averager=3)
    with pytest.raises(InputError, match="averager"):
        train(small, averager=lambda *_: "paper")


def test_an_averager_may_be_a_function_that_returns_a_matrix(small: Problem) -> None:
    """P of one exchange, carried out alpha times."""
    mine = train(small, averager=lambda graph, m, alpha: metropolis_matrix(graph, m))
    theirs = train(small, averager="metropolis")
    np.testing.assert_allclose(vector(mine.model), vector(theirs.model), atol=1e-6)
    with pytest.raises(InputError, match="column 0 sums to 2"):
        train(small, averager=lambda graph, m, alpha: 2 * np.eye(len(m)))


# Trainers


class Walker:
    """Adds 1 to every value at each step: nothing that torch would know."""

    def __init__(self, samples: int, size: int) -> None:
        self.samples, self.size = samples, size
        self.asked: list[tuple[int, int]] = []

    def train(self, model, first, steps):
        self.asked.append((first, steps))
        return model + np.float32(steps)


def test_trainers_of_ones_own_take_the_place_of_an_engine(small: Problem) -> None:
    size = vector(small.model).size
    trainers = [Walker(samples, size) for samples in small.samples]
    result = train(small, trainers=trainers, averager="exact")
    np.testing.assert_allclose(vector(result.model), vector(small.model) + 24, rtol=1e-5)
    assert trainers[0].asked == [(1 + 3 * n, 3) for n in range(8)]
    assert result.history["batch_loss"].isna().all()  # nobody told
    with pytest.raises(InputError, match="engine = 'fast'"):
        train(small, trainers=trainers, engine="fast")
    with pytest.raises(InputError, match="optimizer"):
        train(small, trainers=trainers, optimizer="momentum")


def test_a_trainer_is_asked_for_whole_periods_however_a_run_is_looked_at(small: Problem) -> None:
    """A trainer trains as it likes whenever it is asked: a part of a period would count twice."""
    trainers = [Walker(samples, vector(small.model).size) for samples in small.samples]
    result = train(small, trainers=trainers, averager="exact", evaluate_every=1, steps=25)
    periods = [(1 + 3 * n, 3) for n in range(8)]
    assert [trainer.asked for trainer in trainers] == [[*periods, (25, 1)]] * 6
    np.testing.assert_allclose(vector(result.model), vector(small.model) + 25, rtol=1e-5)


def test_a_trainer_that_does_not_fit_is_named(small: Problem) -> None:
    size = vector(small.model).size
    good = [Walker(samples, size) for samples in small.samples]
    with pytest.raises(InputError, match="trainers = 5"):
        train(small, trainers=good[:5])
    with pytest.raises(InputError, match=r"trainers\[5\].size"):
        train(small, trainers=[*good[:5], Walker(7, 3)])
    with pytest.raises(InputError, match=r"trainers\[5\].samples"):
        train(small, trainers=[*good[:5], Walker(8, size)])
    good[2].train = lambda model, first, steps: model[:3]
    with pytest.raises(sdfeel.RunError, match="client 2"):
        train(small, trainers=good)


def test_by_its_class_a_small_problem_is_the_same_everywhere() -> None:
    """The deployment's trainer is one of these, and draws the same batches."""
    from sdfeel.deploy.client.torch_trainer import TorchTrainer

    world = classification((12, 5, 9), [[0, 1], [2]], "path")
    trainers = [TorchTrainer(world.model, world.datasets[i], i, 0, 0.1, 4) for i in range(3)]
    mine, truth = train(world, trainers=trainers), train(world)
    np.testing.assert_array_equal(vector(mine.model), vector(truth.model))


@pytest.mark.parametrize("trainers", [5, "ab", [1, 2, 3, 4, 5, 6]])
def test_what_is_no_trainer_is_named_before_anything_trains(small: Problem, trainers: Any) -> None:
    with pytest.raises(InputError, match="trainers"):
        train(small, trainers=trainers)


def test_without_a_word_on_evaluation_trainers_are_asked_for_whole_periods(small: Problem) -> None:
    """24 steps by twentieths would be every step; periods have three."""
    size = vector(small.model).size
    trainers = [Walker(samples, size) for samples in small.samples]
    result = train(small, trainers=trainers, evaluate_every=None)
    assert result.history["iteration"].tolist() == list(range(0, 25, 3))


def test_a_trainer_s_own_exception_comes_through_and_says_whose_it_is(small: Problem) -> None:
    size = vector(small.model).size
    trainers = [Walker(samples, size) for samples in small.samples]

    def fails(model: Any, first: int, steps: int) -> Any:
        raise KeyError("mine")

    trainers[2].train = fails  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="mine") as error:
        train(small, trainers=trainers)
    assert error.value.__notes__ == ["from the trainer of client 2, iteration 1"]
