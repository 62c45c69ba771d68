"""Nobody waits for another cluster: what the asynchronous pace must keep to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Problem, classification, networks, vector

import sdfeel
from sdfeel import Asynchronous, InputError, Network, Schedule, load_profile
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Event
from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.algorithm.paces.asynchronous import times_of
from sdfeel.algorithm.paces.star import FedAsync, FedBuff
from sdfeel.callbacks import Callback
from sdfeel.clock import Devices, Exponential, LogUniform
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.state import State

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

PAPER, H10 = load_profile("paper"), load_profile("paper-h10")
CLUSTERS = [[0, 1], [2, 3], [4, 5]]


@pytest.fixture
def three() -> Problem:
    return classification((12, 15, 9, 20, 14, 11), CLUSTERS, dtype=torch.float64)


def train(problem: Problem, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "schedule": Schedule(3, 2, 2), "steps": 24, "lr": 0.1}
    own |= {"batch_size": 4, "evaluate_every": 6, "engine": "reference", "pace": "asynchronous"}
    own |= {"profile": "paper"}
    return sdfeel.train(problem.model, problem.datasets, **{**own, **options})


def algorithm(network: Network, profile=H10, parameters: int = 10, **options: object) -> Algorithm:
    settings = Settings.of({"pace": "asynchronous", **options})
    return settings.algorithm(network, profile, parameters)


def events_of(found: Algorithm, count: int) -> list[Event]:
    """The first events; in which one server is ready, as devices differ."""
    return list(islice(found.events(), count))


@pytest.mark.parametrize("engine", ["reference", "fast", "vectorised"])
@pytest.mark.parametrize(
    ("deadline", "more"),
    [
        (None, {}),
        (1.0, {}),
        (None, {"codecs": {"up": "int4", "down": "int8"}, "averaging_rule": "median"}),
        (None, {"codecs": {"up": "int8", "down": "int4"}}),
    ],
)
def test_equal_devices_and_deadlines_are_the_synchronous_run(three, engine, deadline, more) -> None:
    """Bit for bit, in models; with a deadline given, of as many steps as fit into it."""
    three.model = torch.nn.Linear(4, 3).double()
    network = three.network.with_samples([12, 15, 9, 20, 14, 11])
    tau1 = 3
    if deadline is not None:
        times = PAPER.latencies(15, 6, 3)
        deadline = 4 * float(times.t_cmp[0]) + float(times.t_ct_sr[0])
        tau1 = 4
    own = {"schedule": Schedule(tau1, 2, 2), "engine": engine, "network": network}
    own["evaluate_every"] = 2 * tau1
    own |= more
    mine = train(three, pace=Asynchronous(deadline=deadline), **own)
    theirs = train(three, pace="synchronous", **own)
    assert mine.engine == engine
    np.testing.assert_array_equal(vector(mine.model), vector(theirs.model))
    assert torch.equal(mine.servers, theirs.servers)
    assert mine.client_steps == theirs.client_steps
    assert mine.seconds == pytest.approx(theirs.seconds, rel=1e-12)
    np.testing.assert_allclose(mine.history, theirs.history, rtol=1e-9)


@given(networks(min_servers=2), st.floats(1, 30), st.integers(0, 2**32), st.data())
@settings(max_examples=40)
def test_mean_preserving_mixing_moves_the_mean_by_nothing(network, spread, seed, data) -> None:
    """Over random graphs, shares, speeds and so staleness: to 1e-12 at every single event."""
    law = Devices(LogUniform(least=1 / spread, most=1.0))
    psi = data.draw(st.sampled_from(["aggregations", "rounds", "constant"]))
    pace = Asynchronous(psi=psi, compensation=data.draw(st.floats(0, 1)))
    found = algorithm(network, replace(PAPER, devices=law), pace=pace, seed=seed)
    shares = network.shares.cluster
    models = np.random.default_rng(0).normal(size=(network.servers, 3))
    for event in events_of(found, 12):
        for group in event.groups:
            models[group.server] += np.random.default_rng(group.number).normal(size=3)
        if event.mixing is not None:
            before, P = shares @ models, event.mixing.exchange(0)
            among = list(event.mixing.among or range(network.servers))
            models[among] = P.T @ models[among]
            assert (P > -1e-12).all() or event.mixing.among is None  # a mean of models, not more
            np.testing.assert_allclose(shares @ models, before, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("mixing", "kept"), [("mean-preserving", True), ("stale-weights", False)])
def test_the_mean_is_kept_in_a_run(three, monkeypatch, mixing, kept) -> None:
    """In what is carried out too; the other rule does move it, so the test can fail."""
    moves: list[float] = []
    original = State.mix

    def watched(state: State, event: Event) -> None:
        before = state.mean()
        original(state, event)
        moves.append(float((state.mean() - before).abs().max()))

    monkeypatch.setattr(State, "mix", watched)
    train(three, profile=H10, pace=Asynchronous(mixing=mixing))
    assert len(moves) > 6
    assert (max(moves) < 1e-12) == kept


GRID = 2.0**-7


@dataclass(frozen=True)
class Coarse(Codec):
    """The nearest multiple of GRID: nothing random, and so coarse that nobody overlooks it."""

    feeds_back: bool = False

    def encode(self, values, draw):
        return {"values": np.round(values / GRID)}

    def decode(self, message, like):
        return message["values"].astype(like.dtype) * GRID

    def bits(self, values: int) -> int:
        return 32 * values


def coarse(values):
    return np.round(values / GRID) * GRID


def as_it_is(values):
    return values


def mean(models, weights):
    return weights @ models


def median(models, weights):
    """Of two models: the heavier one, or the middle of equals."""
    if len(models) == 1 or weights[0] > weights[1]:
        return models[0]
    return models[1] if weights[1] > weights[0] else (models[0] + models[1]) / 2


SOMETIMES = Exponential(on=1.0, off=0.3)


@pytest.mark.parametrize("mixing", ["mean-preserving", "stale-weights"])
@pytest.mark.parametrize("available", [None, SOMETIMES])
def test_a_run_is_what_the_equations_say(three, mixing, available) -> None:
    """The run once more in plain numpy, a client at a time, from the page's equations."""
    check_equations(three, mixing, available, {}, {}, mean)


@pytest.mark.parametrize(
    ("more", "ways", "rule"),
    [
        ({"codecs": {"up": Coarse(feeds_back=True)}}, {"up": coarse}, mean),
        (
            {"codecs": {"up": Coarse(feeds_back=True), "down": Coarse()}},
            {"up": coarse, "down": coarse},
            mean,
        ),
        ({"averaging_rule": "median"}, {}, median),
        ({"averaging_rule": "median", "codecs": {"down": Coarse()}}, {"down": coarse}, median),
        ({"codecs": {"between": Coarse()}}, {"between": coarse}, mean),
        ({"server_optimizer": sdfeel.FedAdam(eta=0.05)}, {}, mean),
        (
            {"server_optimizer": sdfeel.FedAdam(eta=0.05), "codecs": {"down": Coarse()}},
            {"down": coarse},
            mean,
        ),
    ],
)
def test_methods_are_what_the_equations_say(three, more, ways, rule) -> None:
    check_equations(three, "mean-preserving", SOMETIMES, more, ways, rule)


def check_equations(three, mixing, available, more, ways, rule) -> None:
    profile = replace(H10, availability=available)
    pace = Asynchronous(mixing=mixing, compensation=0.7, anneal=0.5)
    result = train(three, profile=profile, pace=pace, batch_size=100, seed=5, **more)
    adam = more.get("server_optimizer")
    expected = by_hand(three, profile, pace, steps=24, seed=5, ways=ways, rule=rule, adam=adam)
    np.testing.assert_allclose(result.servers.numpy(), expected, rtol=0, atol=1e-10)


class Descending:
    """A trainer that the library knows nothing of."""

    def __init__(self, problem: Problem, client: int) -> None:
        self.problem, self.client = problem, client
        self.samples, self.size = len(problem.inputs[client]), vector(problem.model).size
        self.asked: list[tuple[int, int]] = []

    def train(self, model, first, steps):
        self.asked.append((first, steps))
        return descend(self.problem, self.client, model, steps)


def test_trainers_make_the_steps_of_their_time(three) -> None:
    pace = Asynchronous(compensation=0.7, anneal=0.5)
    own = {"profile": H10, "seed": 5, "engine": "auto", "evaluate_every": 5}
    trainers = [Descending(three, client) for client in range(6)]
    result = train(three, pace=pace, trainers=trainers, **own)
    expected = by_hand(three, H10, pace, steps=24, seed=5)
    np.testing.assert_allclose(result.servers.numpy(), expected, rtol=0, atol=1e-10)
    for trainer in trainers:
        firsts, steps = zip(*trainer.asked, strict=True)
        assert len(set(steps)) == 1
        assert firsts == tuple(1 + n * steps[0] for n in range(len(firsts)))
    trainers = [Descending(three, client) for client in range(6)]
    star = train(three, scheme="fedbuff", pace=FedBuff(4, 0.9), trainers=trainers, **own)
    expected = star_by_hand(three, "fedbuff", 24)
    np.testing.assert_allclose(vector(star.model), expected, rtol=0, atol=1e-10)


def by_hand(
    problem: Problem,
    profile,
    pace: Asynchronous,
    steps: int,
    seed: int,
    ways=None,
    rule=mean,
    adam=None,
):
    """Full gradients of a linear classifier; the order by time, ties by number."""
    up, down, between = (
        {"up": as_it_is, "down": as_it_is, "between": as_it_is} | (ways or {})
    ).values()
    network = problem.network.with_samples([len(own) for own in problem.inputs])
    samples, mt = np.array(network.shares.samples), network.shares.cluster
    times = profile.latencies(vector(problem.model).size, 6, 3, seed=seed)
    presence = None if profile.availability is None else profile.availability.draw(6, seed)
    need, once = 3 * times.t_cmp + times.t_ct_sr, times.t_cmp + times.t_ct_sr
    T = np.array([max(np.sort(need[own])[1], once[own].max()) for own in CLUSTERS])
    theta = [int((T[i // 2] - times.t_ct_sr[i]) / times.t_cmp[i] + 1e-9) for i in range(6)]
    nominal = np.array([np.average(np.array(theta)[own], weights=samples[own]) for own in CLUSTERS])
    rate = nominal / T
    w0 = vector(problem.model).astype(float)
    models, begun, begin = np.stack([w0] * 3), np.stack([w0] * 3), np.zeros(3)
    held, owed = np.stack([w0] * 3), np.zeros((6, len(w0)))
    shown = {(a, b): w0.copy() for a in range(3) for b in range(3)}  # what b holds of a
    m, v = np.zeros((3, len(w0))), np.full((3, len(w0)), 1e-6)
    turns, latest, count = np.zeros(3, int), np.zeros(3, int), 0
    while int((turns * nominal).min() + 1e-6) < steps:
        d = int(np.argmin(begin + T))
        now = begin[d] + T[d]
        own = [
            i
            for i in CLUSTERS[d]
            if presence is None or presence.off(i, begin[d]) >= begin[d] + T[d]
        ]
        if own:
            share = samples[own] / samples[own].sum()
            thetabar = share @ np.array(theta)[own]
            a = pace.compensation * min(1.0, now / pace.anneal)
            brought = []
            for i in own:
                change = descend(problem, i, held[d], theta[i]) - held[d] + owed[i]
                owed[i] = change - up(change)
                brought.append(held[d] + thetabar / theta[i] * up(change))
            s = (rate.min() / rate[d]) ** a
            if adam is None:
                models[d] = models[d] + s * (rule(np.array(brought), share) - begun[d])
            else:  # of what clients moved, beside what the way down has yet to tell them
                move = s * (rule(np.array(brought), share) - held[d])
                m[d], v[d] = 0.9 * m[d] + 0.1 * move, 0.99 * v[d] + 0.01 * move**2
                told = s * (held[d] - begun[d])
                models[d] = models[d] + told + adam.eta * m[d] / (np.sqrt(v[d]) + 1e-3)
        count, turns[d] = count + 1, turns[d] + 1
        latest[d] = count
        begin[d] = now
        if turns[d] % 2 == 0:
            begin[d] += times.t_sr_sr
            near = network.neighbours(d)
            psi = {j: 1 / (2 * (count - latest[j] + 1)) for j in near}
            if pace.mixing == "mean-preserving":
                before = models.copy()
                for j in near:
                    c = psi[j] * min(mt[d], mt[j]) / 3
                    for end, far in ((d, j), (j, d)):
                        shown[end, far] = shown[end, far] + between(before[end] - shown[end, far])
                    one, other = (shown[d, j], shown[j, d]) if ways else (before[d], before[j])
                    models[d] += c / mt[d] * (other - one)
                    models[j] -= c / mt[j] * (other - one)
            else:
                weights = {d: mt[d] / 2} | {j: mt[j] * psi[j] for j in near}
                models[d] = sum(v * models[j] for j, v in weights.items()) / sum(weights.values())
        begun[d] = models[d]
        held[d] += down(models[d] - held[d])
    return models


def star_by_hand(problem: Problem, rule: str, steps: int, way=as_it_is):
    """The published rules with every client's own times: tau = 6 steps, then up to the cloud."""
    times = H10.latencies(vector(problem.model).size, 6, 3, seed=5)
    need = 6 * times.t_cmp + times.t_ct_cd
    w = vector(problem.model).astype(float)
    begun, versions, begin = [w.copy()] * 6, [0] * 6, np.zeros(6)
    owed = np.zeros((6, len(w)))
    turns, version, buffer = np.zeros(6, int), 0, []
    while turns.min() * 6 < steps:
        i = int(np.argmin(begin + need))
        change, stale = descend(problem, i, begun[i], 6) - begun[i] + owed[i], version - versions[i]
        owed[i] = change - way(change)
        mine = begun[i] + way(change)
        if rule == "fedasync":
            a = 0.8 * (1 + stale) ** -0.5
            w, version = (1 - a) * w + a * mine, version + 1
        else:
            buffer.append((mine - begun[i]) / np.sqrt(1 + stale))
            if len(buffer) == 4:
                w, version, buffer = w + 0.9 * np.mean(buffer, axis=0), version + 1, []
        begun[i], versions[i] = begun[i] + way(w - begun[i]), version
        begin[i] += need[i]
        turns[i] += 1
    return w


@pytest.mark.parametrize(
    ("rule", "pace"), [("fedasync", FedAsync(0.8)), ("fedbuff", FedBuff(size=4, rate=0.9))]
)
@pytest.mark.parametrize("way", [as_it_is, coarse])
def test_stars_without_rounds_follow_their_published_rules(
    three, tmp_path, rule, pace, way
) -> None:
    """And go on where they stopped, with what waits in the buffer and what codecs owe."""
    own = {"scheme": rule, "pace": pace, "profile": H10, "batch_size": 100, "seed": 5}
    if way is coarse:
        own["codecs"] = {"up": Coarse(feeds_back=True), "down": Coarse()}
    whole = train(three, **own)
    expected = star_by_hand(three, rule, 24, way)
    np.testing.assert_allclose(vector(whole.model), expected, rtol=0, atol=1e-10)
    train(three, **own, steps=12, out=tmp_path)
    rest = train(three, **own, out=tmp_path, resume=True)
    np.testing.assert_array_equal(vector(rest.model), vector(whole.model))


def test_a_star_has_its_own_pace_and_no_other(three) -> None:
    usual = train(three, scheme="fedbuff", pace="synchronous")
    given = train(three, scheme="fedbuff", pace=FedBuff())
    np.testing.assert_array_equal(vector(usual.model), vector(given.model))
    for options in ({"scheme": "fedbuff", "pace": "asynchronous"}, {"pace": "fedasync"}):
        with pytest.raises(InputError, match="pace"):
            train(three, **options)


def descend(problem: Problem, client: int, start, steps: int):
    """Eq. (2) with the whole data of a client."""
    x, y = (torch.as_tensor(part[client]) for part in (problem.inputs, problem.targets))
    w = torch.tensor(start, requires_grad=True)
    shapes = [p.shape for p in problem.model.parameters()]
    names = [name for name, _ in problem.model.named_parameters()]
    for _ in range(steps):
        parts = torch.split(w, [s.numel() for s in shapes])
        own = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        outputs = torch.func.functional_call(problem.model, own, (x.double(),))
        (g,) = torch.autograd.grad(torch.nn.functional.cross_entropy(outputs, y), w)
        w = (w - 0.1 * g).detach().requires_grad_()
    return w.detach().numpy()


@pytest.mark.filterwarnings("ignore:codecs.up")  # error feedback, while some are away
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"codecs": {"up": "int4", "down": "int8"}},
        {"codecs": {"between": "int8"}},
        {"averaging_rule": "trimmed"},
        {"server_optimizer": "fedadam"},
    ],
)
def test_a_resumed_run_is_bit_for_bit_the_same(three, tmp_path: Path, more) -> None:
    """With memories of clients too, stopped between evaluations."""
    own = {"profile": H10, "optimizer": sdfeel.Momentum(0.5, memory="keep"), "participation": 0.8}
    own |= more
    whole = train(three, **own)
    train(three, **own, steps=11, evaluate_every=24, out=tmp_path)
    rest = train(three, **own, out=tmp_path, resume=True, evaluate_every=24)
    np.testing.assert_array_equal(vector(rest.model), vector(whole.model))
    assert torch.equal(rest.servers, whole.servers)
    assert rest.seconds == whole.seconds


class Stopping(Callback):
    """After so many calls of on_period, or at the row of an iteration."""

    def __init__(self, rounds: int = -1, row: int = -1) -> None:
        self.rounds, self.row = rounds, row
        self.heard: list[float] = []

    def on_row(self, row) -> bool:
        return row["iteration"] == self.row

    def on_period(self, progress) -> bool:
        self.heard.append(progress.seconds)
        return len(self.heard) == self.rounds


def test_to_stop_at_a_row_is_to_have_asked_for_fewer_steps(three) -> None:
    whole = train(three, profile=H10)
    at = int(whole.history["iteration"].iloc[2])
    stopped = train(three, profile=H10, callbacks=[Stopping(row=at)])
    assert stopped.stopped
    assert not whole.stopped
    assert stopped.iterations == at
    pd.testing.assert_frame_equal(stopped.history, whole.history.iloc[:3])


@pytest.mark.parametrize("rounds", range(3, 12))
def test_a_run_stopped_between_rows_is_evaluated_there_and_goes_on(
    three, tmp_path: Path, rounds: int
) -> None:
    """Also where the slowest cluster has not moved since the last row: others have."""
    own = {"profile": H10, "evaluate_every": 3}
    stopping = Stopping(rounds)
    stopped = train(three, **own, callbacks=[stopping], out=tmp_path)
    assert stopped.stopped
    assert stopped.history["seconds"].iloc[-1] == stopped.seconds
    assert stopped.history["iteration"].is_unique
    assert len(load_trace(tmp_path)) == len(stopped.history), "the page is shown each of them"
    assert stopping.heard == sorted(stopping.heard)
    assert len(stopping.heard) >= rounds
    rest = train(three, **own, out=tmp_path, resume=True)
    assert not rest.stopped
    np.testing.assert_array_equal(vector(rest.model), vector(train(three, **own).model))


def test_a_run_whose_time_is_over_while_the_slowest_stands_still_has_one_row_of_it(
    three, tmp_path: Path
) -> None:
    """The row is the newer one: of the models, and the second, at which the run ended."""
    rows = train(three, profile=H10, evaluate_every=1).history["seconds"]
    stood = 0
    for number, until in enumerate(np.linspace(rows.iloc[2], rows.iloc[9], 5)):
        own = {"profile": H10, "evaluate_every": 1, "until": float(until), "steps": 10**6}
        ended = train(three, **own, out=tmp_path / str(number))
        assert ended.history["iteration"].is_unique
        assert ended.history["seconds"].iloc[-1] == ended.seconds >= until
        assert len(load_trace(tmp_path / str(number))) == len(ended.history)
        stood += not np.isclose(rows, ended.seconds).any()
    assert stood > 0, "none of these ended between two rows: nothing was tested"


def load_trace(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "trace.csv")


def test_no_server_waits_for_another_cluster(three) -> None:
    """A server begins anew as soon as its own message is out; synchronous ones do wait."""
    mine, theirs = (train(three, profile=H10, pace=p) for p in ("asynchronous", "synchronous"))
    assert (mine.history["idle_share"] == 0).all()
    assert theirs.history["idle_share"].iloc[-1] > 0.05
    found = algorithm(
        three.network.with_samples([12, 15, 9, 20, 14, 11]), schedule=Schedule(3, 1, 1)
    )
    begin, times = np.zeros(3), found.uplink.latencies
    for event in events_of(found, 30):
        (group,) = event.groups
        length = times_of(found.pace, found).deadline[group.server]
        assert event.begun[0] == pytest.approx(begin[group.server])
        assert event.at == pytest.approx(begin[group.server] + length)
        begin[group.server] = event.at + times.t_sr_sr


def test_codecs_are_charged_and_who_was_away_gets_the_whole_model() -> None:
    """An upload is as long as its message; so is a broadcast, but for those who missed the last."""
    network = Network.ring(3, 4)
    profile = replace(load_profile("paper-downlink"), devices=H10.devices)
    own = {"parameters": 2560, "participation": 0.6, "schedule": Schedule(3, 1, 1)}
    plain = algorithm(network, profile, **own)
    coded = algorithm(network, profile, codecs={"up": "int8", "down": "int8"}, **own)
    up, whole = 8 * 2560 + 32 * 10, 32 * 2560
    saved = (whole - up) / 5e6
    need = 3 * plain.uplink.latencies.t_cmp + whole / 5e6
    once = plain.uplink.latencies.t_cmp + whole / 5e6
    for d, members in enumerate(network.clusters.members):
        expected = max(np.sort(need[list(members)])[2], once[list(members)].max())
        assert times_of(plain.pace, plain).deadline[d] == pytest.approx(expected)
        assert times_of(coded.pace, coded).deadline[d] == pytest.approx(expected - saved)
    lengths, turns = set(), np.zeros(3, dtype=int)
    for event in events_of(coded, 36):
        (group,) = event.groups
        d = group.server
        turns[d] += 1
        coming = coded.participation.present(int(turns[d]))
        here = [i for i in network.clusters.members[d] if coming[i]]
        bits = max([up if i in group.clients else whole for i in here], default=0)
        assert event.spans["exchange"][0] == pytest.approx(coded.uplink.latencies.t_sr_sr)
        assert event.spans["download"][0] == pytest.approx(bits / 5e6)
        lengths.add(bits)
    assert {up, whole} <= lengths


def test_the_order_is_that_of_time_and_depends_on_seed_and_profile_only() -> None:
    network = Network.ring(6, 3)
    orders = [
        [event.groups[0].server for event in events_of(algorithm(network, seed=seed), 40)]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    at = [event.at for event in events_of(algorithm(network), 40)]
    assert at == sorted(at)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pace": Asynchronous(deadline=1e-6)}, "pace.deadline"),
        ({"pace": Asynchronous(deadline=(1.0, 1.0))}, "pace.deadline"),
        ({"pace": Asynchronous(deadline=(1.0, 1.0, 1e-6))}, "server 2"),
        ({"correction": "two-level"}, "correction.*rounds of all servers.*Asynchronous"),
        (
            {"averaging_rule": "median", "scheme": "fedbuff", "pace": "synchronous"},
            "several clients at once.*FedBuff",
        ),
        ({"schedule": Schedule(lambda _: 2, 1, 1)}, "pace.*a schedule that changes"),
    ],
)
def test_what_cannot_work_is_named_before_training(three, options, field) -> None:
    with pytest.raises(InputError, match=field):
        train(three, **options)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"deadline": 0}, "pace.deadline"),
        ({"deadline": "soon"}, "pace.deadline"),
        ({"mixing": "stale"}, "pace.mixing"),
        ({"compensation": 1.5}, "pace.compensation"),
        ({"anneal": -1.0}, "pace.anneal"),
        ({"psi": "squares"}, "pace.psi"),
    ],
)
def test_a_bad_number_is_named(options, field) -> None:
    with pytest.raises(InputError, match=field):
        Asynchronous(**options)


def test_a_psi_of_ones_own(three) -> None:
    usual = train(three, profile=H10)
    own = train(three, profile=H10, pace=Asynchronous(psi=lambda delta: 1 / (2 * (delta + 1))))
    np.testing.assert_array_equal(vector(own.model), vector(usual.model))
    with pytest.raises(InputError, match=r"pace\.psi"):
        train(three, profile=H10, pace=Asynchronous(psi=lambda _: 2.0))


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5])
def test_the_default_deadline_is_that_of_the_upper_median(clients: int) -> None:
    """So that at least half of the clients of a cluster make tau1 steps."""
    speeds = [1.0, 0.5, 0.9, 0.4, 0.7][:clients]
    profile = replace(PAPER, devices=Devices(speed=speeds))
    found = algorithm(Network([range(clients)], []), profile, schedule=Schedule(3, 1, 1))
    times, sending = times_of(found.pace, found), found.uplink.seconds(np.ones(clients, bool))
    needed = sorted(3 * found.uplink.latencies.t_cmp + sending)
    assert times.deadline[0] == needed[clients // 2]
    assert 2 * (times.steps >= 3).sum() >= clients
