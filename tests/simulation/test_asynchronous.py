"""Nobody waits for another cluster: what the asynchronous pace must keep to."""

from __future__ import annotations

from dataclasses import replace
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
from sdfeel.algorithm.schemes import Algorithm
from sdfeel.algorithm.star import FedAsync, FedBuff
from sdfeel.algorithm.turns import Flow, Turn
from sdfeel.callbacks import Callback
from sdfeel.clock import Availability, Devices, Law
from sdfeel.simulation.turns import TurnState

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

PAPER, H10 = load_profile("paper"), load_profile("paper-h10")
CLUSTERS = [[0, 1], [2, 3], [4, 5]]


@pytest.fixture
def three() -> Problem:
    return classification((12, 15, 9, 20, 14, 11), CLUSTERS, dtype=torch.float64)


def train(problem: Problem, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "schedule": Schedule(3, 2, 2), "steps": 24, "lr": 0.1}
    own |= {"batch_size": 4, "evaluate_every": 6, "engine": "reference", "pace": "asynchronous"}
    return sdfeel.train(problem.model, problem.datasets, **{**own, **options})


def algorithm(network: Network, profile=H10, **options: object) -> Algorithm:
    own = {"pace": "asynchronous", "parameters": 10, "profile": profile}
    return Algorithm.of("sd-feel", network, **{**own, **options})


def turns_of(found: Algorithm, count: int) -> list[Turn]:
    agenda, turns = found.pace.agenda(found), []
    while len(turns) < count:
        window, agenda = agenda.window(10**9, 10**9, np.inf)
        assert len({turn.group for turn in window}) == len(window)  # or one would train too early
        turns += window
    return turns


@pytest.mark.parametrize("engine", ["reference", "fast", "vectorised"])
@pytest.mark.parametrize("deadline", [None, 1.0])
def test_equal_devices_and_deadlines_are_the_synchronous_run(three, engine, deadline) -> None:
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
    law = Devices(Law("log-uniform", least=1 / spread, most=1.0))
    psi = data.draw(st.sampled_from(["aggregations", "rounds", "constant"]))
    pace = Asynchronous(psi=psi, compensation=data.draw(st.floats(0, 1)))
    found = algorithm(network, replace(PAPER, devices=law), pace=pace, seed=seed)
    shares = network.shares.cluster
    models = np.random.default_rng(0).normal(size=(network.servers, 3))
    for turn in turns_of(found, 12):
        models[turn.server] += np.random.default_rng(turn.group).normal(size=3)
        if isinstance(turn.mixing, Flow):
            before = shares @ models
            flow, own = turn.mixing, models[turn.mixing.server].copy()
            others = models[list(flow.neighbours)]
            models[flow.server] = own + np.array(flow.inward) @ (others - own)
            moved = np.array(flow.outward)[:, None] * (own - others)
            models[list(flow.neighbours)] = others + moved
            assert sum(flow.inward) < 1  # a mean of models, not more
            np.testing.assert_allclose(shares @ models, before, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("mixing", "kept"), [("mean-preserving", True), ("stale-weights", False)])
def test_the_mean_is_kept_in_a_run(three, monkeypatch, mixing, kept) -> None:
    """In what is carried out too; the other rule does move it, so the test can fail."""
    moves: list[float] = []
    original = TurnState._flow

    def watched(state: TurnState, flow: Flow) -> None:
        before = state.mean()
        original(state, flow)
        moves.append(float((state.mean() - before).abs().max()))

    monkeypatch.setattr(TurnState, "_flow", watched)
    train(three, profile=H10, pace=Asynchronous(mixing=mixing))
    assert len(moves) > 6
    assert (max(moves) < 1e-12) == kept


@pytest.mark.parametrize("mixing", ["mean-preserving", "stale-weights"])
@pytest.mark.parametrize("available", [None, Availability(law="exponential", on=1.0, off=0.3)])
def test_a_run_is_what_the_equations_say(three, mixing, available) -> None:
    """The run once more in plain numpy, a client at a time, from the page's equations."""
    profile = replace(H10, availability=available)
    pace = Asynchronous(mixing=mixing, compensation=0.7, anneal=0.5)
    result = train(three, profile=profile, pace=pace, batch_size=100, seed=5)
    expected = by_hand(three, profile, pace, steps=24, seed=5)
    np.testing.assert_allclose(result.servers.numpy(), expected, rtol=0, atol=1e-10)


def by_hand(problem: Problem, profile, pace: Asynchronous, steps: int, seed: int):
    """Full gradients of a linear classifier; the order by time, ties by number."""
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
            mean = share @ np.array(theta)[own]
            a = pace.compensation * min(1.0, now / pace.anneal)
            step = (rate.min() / rate[d]) ** a * mean
            for part, i in zip(share, own, strict=True):
                w = descend(problem, i, begun[d], theta[i])
                models[d] = models[d] - step * part * (begun[d] - w) / theta[i]
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
                    models[d] += c / mt[d] * (before[j] - before[d])
                    models[j] -= c / mt[j] * (before[j] - before[d])
            else:
                weights = {d: mt[d] / 2} | {j: mt[j] * psi[j] for j in near}
                models[d] = sum(v * models[j] for j, v in weights.items()) / sum(weights.values())
        begun[d] = models[d]
    return models


def star_by_hand(problem: Problem, rule: str, steps: int):
    """The published rules with every client's own times: tau = 6 steps, then up to the cloud."""
    times = H10.latencies(vector(problem.model).size, 6, 3, seed=5)
    need = 6 * times.t_cmp + times.t_ct_cd
    w = vector(problem.model).astype(float)
    begun, versions, begin = [w.copy()] * 6, [0] * 6, np.zeros(6)
    turns, version, buffer = np.zeros(6, int), 0, []
    while turns.min() * 6 < steps:
        i = int(np.argmin(begin + need))
        mine, stale = descend(problem, i, begun[i], 6), version - versions[i]
        if rule == "fedasync":
            a = 0.8 * (1 + stale) ** -0.5
            w, version = (1 - a) * w + a * mine, version + 1
        else:
            buffer.append((mine - begun[i]) / np.sqrt(1 + stale))
            if len(buffer) == 4:
                w, version, buffer = w + 0.9 * np.mean(buffer, axis=0), version + 1, []
        begun[i], versions[i] = w.copy(), version
        begin[i] += need[i]
        turns[i] += 1
    return w


@pytest.mark.parametrize(
    ("rule", "pace"), [("fedasync", FedAsync(0.8)), ("fedbuff", FedBuff(size=4, rate=0.9))]
)
def test_stars_without_rounds_follow_their_published_rules(three, tmp_path, rule, pace) -> None:
    """And go on where they stopped, with what waits in the buffer."""
    own = {"scheme": rule, "pace": pace, "profile": H10, "batch_size": 100, "seed": 5}
    whole = train(three, **own)
    expected = star_by_hand(three, rule, 24)
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


def test_a_resumed_run_is_bit_for_bit_the_same(three, tmp_path: Path) -> None:
    """With memories of clients too, stopped between evaluations."""
    own = {"profile": H10, "local": sdfeel.Momentum(0.5, memory="keep"), "participation": 0.8}
    whole = train(three, **own)
    train(three, **own, steps=11, evaluate_every=24, out=tmp_path)
    rest = train(three, **own, out=tmp_path, resume=True, evaluate_every=24)
    np.testing.assert_array_equal(vector(rest.model), vector(whole.model))
    assert torch.equal(rest.servers, whole.servers)
    assert rest.seconds == whole.seconds


class Stopping(Callback):
    """After so many calls of on_round, or at the row of an iteration."""

    def __init__(self, rounds: int = -1, row: int = -1) -> None:
        self.rounds, self.row = rounds, row
        self.heard: list[float] = []

    def on_row(self, row) -> bool:
        return row["iteration"] == self.row

    def on_round(self, progress) -> bool:
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
    assert not stopped.history.duplicated().any()
    assert len(load_trace(tmp_path)) == len(stopped.history), "the page is shown each of them"
    assert stopping.heard == sorted(stopping.heard)
    assert len(stopping.heard) >= rounds
    rest = train(three, **own, out=tmp_path, resume=True)
    assert not rest.stopped
    np.testing.assert_array_equal(vector(rest.model), vector(train(three, **own).model))


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
    for turn in turns_of(found, 30):
        assert turn.at == pytest.approx(begin[turn.server] + turn_length(found)[turn.server])
        begin[turn.server] = turn.at + times.t_sr_sr


def turn_length(found: Algorithm):
    return found.pace.agenda(found).length


def test_the_order_is_that_of_time_and_depends_on_seed_and_profile_only() -> None:
    network = Network.ring(6, 3)
    orders = [[t.server for t in turns_of(algorithm(network, seed=s), 40)] for s in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    at = [turn.at for turn in turns_of(algorithm(network), 40)]
    assert at == sorted(at)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"pace": Asynchronous(deadline=1e-6)}, "pace.deadline"),
        ({"pace": Asynchronous(deadline=(1.0, 1.0))}, "pace.deadline"),
        ({"pace": Asynchronous(deadline=(1.0, 1.0, 1e-6))}, "server 2"),
        ({"codecs": {"up": "int8"}}, "codecs.up"),
        ({"correction": "two-level"}, "correction"),
        ({"averaging_rule": "median"}, "averaging_rule"),
        ({"server": "fedadam"}, "server"),
        ({"server": "fedadam", "scheme": "fedbuff", "pace": "synchronous"}, "server"),
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
