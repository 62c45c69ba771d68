"""Neighbours and clients that lie, and servers that look at what they hear."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds import networks

import sdfeel
from sdfeel import InputError
from sdfeel.algorithm.methods.attacks import LIES, OF_CLIENTS
from sdfeel.experiments.config import run_config
from sdfeel.simulation.settings import Settings

SEED = np.random.default_rng(0)
CENTRES = SEED.normal(size=(3, 4)) * 2
RING = sdfeel.Network.ring(5, 2)


def shares_of(network, seed=0):
    """Points around three centres, a few for each client; clients have most of one class."""
    rng = np.random.default_rng(seed)
    data = []
    for client in range(network.clients):
        labels = np.where(rng.random(12) < 0.5, client % 3, rng.integers(0, 3, 12))
        data.append((CENTRES[labels] + rng.normal(size=(12, 4)), labels))
    return data


def train(network=RING, **settings):
    torch.manual_seed(0)
    rng = np.random.default_rng(9)
    labels = rng.integers(0, 3, 300)
    given = {"steps": 80, "schedule": sdfeel.Schedule(2, 1, 1), "lr": 0.05, "engine": "vectorised",
             "test": (CENTRES[labels] + rng.normal(size=(300, 4)), labels)}  # fmt: skip
    model = torch.nn.Linear(4, 3).double()
    return sdfeel.train(model, shares_of(network), network=network, **(given | settings))


class Recorder(sdfeel.Method):
    """Keeps the models before and after each exchange."""

    def __init__(self):
        self.seen = []

    def ended(self, before, after, rows, event, algorithm):
        self.seen.append((before.copy(), after.copy()))


# Exchanges


def test_where_nothing_is_clipped_it_is_metropolis() -> None:
    usual = train(averager="metropolis")
    wide = train(averager=sdfeel.Clipped(factor=1e9))
    np.testing.assert_allclose(wide.history["train_loss"], usual.history["train_loss"], rtol=1e-9)


@given(network=networks(min_servers=2, max_servers=5), factor=st.floats(0.01, 3.0))
def test_the_weighted_mean_stays_where_both_ends_clip(network, factor) -> None:
    """However much is clipped, both ends of a link apply one change with opposite sign."""
    recorder = Recorder()
    train(network, averager=sdfeel.Clipped(factor), methods=[recorder], steps=6)
    shares = network.with_samples([12] * network.clients).shares.cluster
    for before, after in recorder.seen:
        np.testing.assert_allclose(shares @ after, shares @ before, atol=1e-12)


def test_the_mean_moves_where_each_end_clips_alone() -> None:
    """Ends that clip alone apply different changes: that is why both is the default."""
    network, recorder = sdfeel.Network.build("path", 3, [1, 2, 4]), Recorder()
    train(network, averager=sdfeel.Clipped(0.1, "own"), methods=[recorder], steps=6)
    shares = network.with_samples([12] * 7).shares.cluster
    before, after = recorder.seen[-1]
    assert np.abs(shares @ after - shares @ before).max() > 1e-9


@given(
    moves=st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3),
    push=st.floats(-1e6, 1e6),
    ends=st.sampled_from(["both", "own"]),
)
def test_a_liar_moves_a_server_by_no_more_than_its_bound(moves, push, ends) -> None:
    network, rule = sdfeel.Network([[0], [1], [2]], "ring"), sdfeel.Clipped(2.0, ends)
    averager = network.averager(rule, 1)
    models = np.zeros((3, 4))
    rows = {"moves": np.array(moves)[:, None]}

    def told(sender, receiver):
        return (np.full(4, push), True) if sender == 1 else (models[sender], False)

    after = rule.exchange(models, told, rows, averager, 0)
    for d in (0, 2):
        bound = averager.exchange(0)[1, d] * 2.0 * moves[d]
        assert np.linalg.norm(after[d]) <= bound * (1 + 1e-9)


def test_without_a_history_nothing_is_taken() -> None:
    network, rule = sdfeel.Network([[0], [1]], "path"), sdfeel.Clipped()
    models = np.array([[0.0], [1.0]])
    rows = {"moves": np.zeros((2, 20))}
    after = rule.exchange(
        models, lambda j, d: (models[j], False), rows, network.averager(rule, 1), 0
    )
    np.testing.assert_array_equal(after, models)


def test_trimming_drops_the_ends_of_each_value() -> None:
    network, rule = sdfeel.Network([[d] for d in range(4)], "full"), sdfeel.Trimmed(1)
    models = np.array([[0.0, 9.0], [1.0, 8.0], [2.0, 7.0], [100.0, -50.0]])
    after = rule.exchange(models, lambda j, d: (models[j], False), {}, network.averager(rule, 1), 0)
    np.testing.assert_allclose(after, [[1.5, 7.5]] * 4)


def test_trimming_leaves_one_model_at_least() -> None:
    network, rule = sdfeel.Network([[0], [1]], "path"), sdfeel.Trimmed(5)
    models = np.array([[0.0], [1.0]])
    after = rule.exchange(models, lambda j, d: (models[j], False), {}, network.averager(rule, 1), 0)
    np.testing.assert_allclose(after, [[0.5], [0.5]])


# Attacks


def told_by(name, strength=None, graph="full", servers=4):
    """What server 1 tells server 0, with models and what they were before; and these."""
    network = sdfeel.Network([[d] for d in range(servers)], graph)
    averager = network.averager("metropolis", 1)
    rng = np.random.default_rng(3)
    models, last = rng.normal(size=(servers, 5)), rng.normal(size=(servers, 5))
    attacks = sdfeel.Attacks(servers={1: sdfeel.Lie(name, strength)})
    heard = attacks.tell(models, 1, 0, {"last": last}, averager)
    return heard, models, last, averager.exchange(0)


def test_each_lie_is_its_formula() -> None:
    heard, w, last, _ = told_by("sign-flip", 3)
    np.testing.assert_allclose(heard, last[1] - 3 * (w[1] - last[1]))
    heard, w, *_ = told_by("huge", 7)
    np.testing.assert_allclose(heard, w[1] + 7)
    heard, w, *_ = told_by("alie", 1.5)
    honest = w[[0, 2, 3]]
    np.testing.assert_allclose(heard, honest.mean(0) - 1.5 * honest.std(0))
    heard, w, last, _ = told_by("inner-product", 2)
    np.testing.assert_allclose(heard, last[1] - 2 * (w[[0, 2, 3]].mean(0) - last[1]))
    heard, w, *_ = told_by("mimic")
    np.testing.assert_allclose(heard, w[0])
    heard, w, last, _ = told_by("drag", 2)
    assert np.linalg.norm(heard - w[0]) == pytest.approx(2 * np.linalg.norm(w[0] - last[0]))


def test_dissensus_undoes_what_the_honest_pull() -> None:
    """With strength 1 the lie and the honest neighbours together leave a server where it was."""
    heard, w, _, P = told_by("dissensus")
    honest = sum(P[j, 0] * (w[j] - w[0]) for j in (2, 3))
    np.testing.assert_allclose(P[1, 0] * (heard - w[0]) + honest, 0, atol=1e-12)


def test_spectral_pushes_along_the_slowest_mode() -> None:
    """Server 1 of a ring of four lies: the honest are a path 2 - 3 - 0, slowest end to end."""
    heard, w, *_ = told_by("spectral", 5, graph="ring")
    mode = np.array([1, 0, -1, 0]) / np.sqrt(2)
    np.testing.assert_allclose(heard, w[0] + 5 * mode[0] * (mode @ w), atol=1e-12)


@pytest.mark.parametrize("lie", OF_CLIENTS)
def test_lying_clients_change_the_mean_and_nothing_else(lie) -> None:
    """One period of one cluster: the mean is that of what was uploaded."""
    network = sdfeel.Network.build("path", 1, 3)
    uploads = {}

    class Spy(sdfeel.AveragingRule):
        def combine(self, models, shares, held, rows, period):
            uploads["seen"], uploads["held"] = models.copy(), held.copy()
            return shares @ models

    honest = train(network, steps=2, averaging_rule=Spy(), evaluate_every=2)
    plain, held = uploads["seen"], uploads["held"]
    lying = train(network, steps=2, averaging_rule=Spy(), attacks={"clients": {1: lie}})
    seen = uploads["seen"]
    np.testing.assert_array_equal(seen[[0, 2]], plain[[0, 2]])
    others = plain[[0, 2]]
    expected = {
        "sign-flip": held - 10 * (plain[1] - held),
        "huge": plain[1] + 1e3,
        "alie": others.mean(0) - 1.5 * others.std(0),
        "inner-product": held - 2 * (others.mean(0) - held),
        "mimic": others[0],
    }
    np.testing.assert_allclose(seen[1], expected[lie], rtol=1e-12)
    assert honest.history["train_loss"].iloc[-1] != lying.history["train_loss"].iloc[-1]


@pytest.mark.parametrize("lie", ["sign-flip", "dissensus", "spectral"])
def test_clipping_holds_where_the_plain_exchange_does_not(lie) -> None:
    """One liar in a ring of five: honest accuracy, against that of nobody lying."""
    attacks = {"servers": {1: lie}}
    honest = train().history["server_accuracy_mean"].iloc[-1]
    clipped = train(averager="clipped", attacks=attacks).history["server_accuracy_mean"].iloc[-1]
    assert clipped > honest - 0.1
    if lie == "sign-flip":
        plain = train(attacks=attacks).history["server_accuracy_mean"].iloc[-1]
        assert plain < clipped - 0.2


def test_liars_do_not_count_in_what_is_measured() -> None:
    """The model of the result is the mean of the honest, whatever the liar's own model is."""
    recorder = Recorder()
    result = train(attacks={"servers": {1: "huge"}}, averager="clipped", methods=[recorder])
    mean = np.delete(recorder.seen[-1][1], 1, axis=0).mean(axis=0)
    model = torch.cat([value.detach().flatten() for value in result.model.parameters()])
    np.testing.assert_allclose(model, mean, rtol=1e-9)


def test_a_resumed_run_lies_as_before(tmp_path) -> None:
    """What servers were before the last exchange, and the bounds, are in the checkpoint."""
    settings = {
        "averager": "clipped",
        "attacks": {"servers": {1: "sign-flip"}, "clients": {0: "alie"}},
    }
    whole = train(steps=40, **settings)
    half = {"out": tmp_path / "run", **settings}
    train(steps=20, **half)
    resumed = train(steps=40, resume=True, **half)
    np.testing.assert_array_equal(
        whole.history["train_loss"].iloc[-1], resumed.history["train_loss"].iloc[-1]
    )


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised"])
def test_engines_agree(engine) -> None:
    attacks = {"servers": {1: "drag"}, "clients": {0: "sign-flip"}}
    ours = train(steps=10, averager="clipped", attacks=attacks, engine=engine)
    other = train(steps=10, averager="clipped", attacks=attacks, engine="vectorised")
    np.testing.assert_allclose(ours.history["train_loss"], other.history["train_loss"], rtol=1e-9)


def test_files_say_the_same() -> None:
    table = {
        "averager": {"name": "clipped", "factor": 3.0},
        "attacks": {
            "servers": {"1": "dissensus"},
            "clients": {"3": {"name": "huge", "strength": 5}},
        },
    }
    settings = run_config(table).settings
    assert settings.averager == sdfeel.Clipped(3.0)
    assert settings.attacks.clients == {3: sdfeel.Lie("huge", 5)}
    again = {key: settings.table()[key] for key in ("averager", "attacks")}
    assert run_config(again).settings.attacks == settings.attacks
    assert run_config(again).settings.averager == settings.averager
    assert "attacks" not in Settings().table() or not Settings().table()["attacks"]


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"attacks": {"servers": {1: "disensus"}}}, r"attacks.servers.1.*did you mean 'dissensus'"),
        ({"attacks": {"clients": {1: "dissensus"}}}, "attacks.clients.1"),
        ({"attacks": {"servers": {7: "huge"}}}, "servers are 0 to 4"),
        ({"attacks": {"clients": {10: "huge"}}}, "clients are 0 to 9"),
        ({"attacks": {"servers": {"x": "huge"}}}, "the number of one that lies"),
        ({"attacks": {"server": {1: "huge"}}}, "did you mean 'servers'"),
        ({"attacks": {"servers": dict.fromkeys(range(5), "huge")}}, "one server must be honest"),
        ({"attacks": {"servers": {1: {"name": "huge", "force": 3}}}}, "force"),
        ({"attacks": {"servers": {1: {"name": "huge", "strength": -3}}}}, "strength"),
        ({"attacks": 3}, "attacks"),
        ({"attacks": {"servers": ["huge"]}}, "attacks.servers"),
        ({"averager": "cliped"}, "did you mean 'clipped'"),
        ({"averager": {"name": "clipped", "factor": 0}}, "averager.factor"),
        ({"averager": {"name": "clipped", "size": 1}}, "averager.size"),
        ({"averager": "trimmed", "pace": sdfeel.Asynchronous()}, "rounds"),
        ({"attacks": {"servers": {1: "huge"}}, "scheme": "fedavg"}, "servers"),
    ],
)
def test_mistakes_are_named(given, match) -> None:
    with pytest.raises(InputError, match=match):
        train(steps=2, **given)


def test_every_lie_runs() -> None:
    for lie in LIES:
        assert np.isfinite(
            train(steps=4, attacks={"servers": {1: lie}}).history["train_loss"]
        ).all()
