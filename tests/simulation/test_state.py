"""The state of a run: what events do to models, and that nothing else shows in them."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Problem as World
from worlds import classification, networks

import sdfeel
from sdfeel import AVERAGERS, Network
from sdfeel.algorithm.events import Event
from sdfeel.engines.choose import ENGINES
from sdfeel.engines.engine import Engine, Interrupted, Work
from sdfeel.simulation import training
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation
from sdfeel.simulation.state import State

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

SAMPLES = (12, 5, 9, 20, 4, 7)
CLUSTERS = [[0, 3], [4, 1, 2], [5]]


def simulation(world: World | None = None, **options: object) -> Simulation:
    world = world or classification(SAMPLES, CLUSTERS, "path", hidden=5, dtype=torch.float64)
    given = {"schedule": sdfeel.Schedule(3, 2, 2), "lr": 0.1, "batch_size": 6, "seed": 2, **options}
    return Simulation.assemble(
        world.model, world.datasets, Settings.of(given), network=world.network
    )


def begin(own: Simulation, engine: str = "vectorised") -> tuple[State, Engine]:
    state = State(own.problem, own.algorithm, own.start, own.ranks)
    return state, ENGINES[engine](own.problem)


def events(own: Simulation, count: int = 1) -> list[Event]:
    return list(islice(own.algorithm.events(), count))


def take(state: State, engine: Engine, *window: Event) -> list[np.ndarray]:
    """Train a window and take it, without the exchanges of its events; losses."""
    trained = state.train(window, engine, lambda: False)
    for event in window:
        state.take(event, trained)
    return trained.losses


def models_of(own: Simulation, event: Event) -> dict[int, np.ndarray]:
    """Each present client's model at the end of the period, trained alone by the reference."""
    found = {}
    for group in event.groups:
        for client, first, last in zip(group.clients, group.first, group.last, strict=True):
            engine = ENGINES["reference"](own.problem)
            models = own.start[None].clone()
            start = own.start[None], np.zeros(1, dtype=int)
            one = np.array([client])
            engine.train(Work(one, np.array([first]), np.array([last]), start), models)
            found[int(client)] = models[0].numpy()
    return found


# With this seed clients 1 and 5 are absent in the first period, so that a server has nobody.
ABSENT = {"participation": 0.5, "seed": 1}


def test_who_is_absent_here() -> None:
    (event,) = events(simulation(**ABSENT))
    assert [len(group.clients) for group in event.groups][2] == 0
    assert 0 < len(event.groups[1].clients) < 3


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_servers_take_the_weighted_mean_of_those_present(engine: str) -> None:
    world = classification(SAMPLES, CLUSTERS, "path", dtype=torch.float64)
    own = simulation(world=world, **ABSENT)
    (event,) = events(own)
    state, engine_ = begin(own, engine)
    before = state.models.clone()
    losses = take(state, engine_, event)
    engine_.close()
    assert [len(own) for own in losses] == [3] * sum(len(group.clients) for group in event.groups)
    clients = models_of(own, event)
    for group in event.groups[:2]:
        samples = np.array(SAMPLES)[group.clients]
        np.testing.assert_allclose(group.shares, samples / samples.sum())
        expected = sum(share * clients[i] for i, share in zip(group.clients, group.shares))  # noqa: B905
        np.testing.assert_allclose(state.models[group.server].numpy(), expected, atol=1e-13)
    assert torch.equal(state.models[2], before[2])  # nobody came: it keeps its model


def test_a_rule_takes_the_place_of_the_mean() -> None:
    seen = []

    def rule(models, shares, held):
        seen.append((models.copy(), shares.copy(), held.copy()))
        return models.max(axis=0)

    own = simulation(averaging_rule=rule, **ABSENT)
    (event,) = events(own)
    state, engine = begin(own)
    take(state, engine, event)
    clients = models_of(simulation(**ABSENT), event)
    models, shares, held = seen[1]
    group = event.groups[1]
    np.testing.assert_allclose(models, np.stack([clients[i] for i in group.clients]), atol=1e-13)
    np.testing.assert_allclose(shares, group.shares, rtol=1e-12)
    np.testing.assert_array_equal(held, own.start.numpy())
    np.testing.assert_array_equal(state.models[1].numpy(), models.max(axis=0))


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("rule", ["sgd", "momentum"])
def test_blocks_show_in_no_bit(monkeypatch, engine: str, rule: str) -> None:
    """Clients in blocks below, at and above a cluster's size."""
    world = classification(SAMPLES, CLUSTERS, "path", hidden=5)
    own = simulation(world=world, optimizer=rule)
    found = []
    for block in (6, 1, 2, 3):
        monkeypatch.setattr(training.Training, "_block", lambda *_, most=block: most)
        state, engine_ = begin(own, engine)
        take(state, engine_, *events(own))
        engine_.close()
        found.append(state.models)
    for other in found[1:]:
        assert torch.equal(other, found[0])


def test_a_rule_sees_whole_clusters_whatever_the_block(monkeypatch) -> None:
    monkeypatch.setattr(training.Training, "_block", lambda *_, most=1: most)
    sizes = []

    def rule(models, shares, held):
        sizes.append(len(models))
        return shares @ models

    own = simulation(averaging_rule=rule)
    state, engine = begin(own)
    take(state, engine, *events(own))
    assert sizes == [2, 3, 1]


def test_a_clients_model_exists_only_in_its_block(monkeypatch) -> None:
    """Memory is that of servers and of a block, not of clients."""
    rows = []
    own = simulation()
    state, engine = begin(own)
    train = engine.train
    monkeypatch.setattr(
        engine, "train", lambda work, models: rows.append(len(models)) or train(work, models)
    )
    monkeypatch.setattr(training.Training, "_block", lambda *_, most=2: most)
    take(state, engine, *events(own))
    assert rows == [2, 2, 2]
    state.begin(*events(own))
    assert set(state.save()) == {"servers.model"}


def test_training_that_is_stopped_between_two_blocks_changes_nothing(monkeypatch) -> None:
    monkeypatch.setattr(training.Training, "_block", lambda *_, most=2: most)
    own = simulation(optimizer=sdfeel.Momentum(0.9, memory="keep"))
    state, engine = begin(own)
    before = {name: rows.clone() for name, rows in state.save().items()}
    asked = iter([False] * 8 + [True])
    with pytest.raises(Interrupted):
        state.train(events(own), engine, lambda: next(asked))
    for name, rows in state.save().items():
        assert torch.equal(rows, before[name])


@settings(max_examples=40, deadline=None)
@given(network=networks(min_servers=2), name=st.sampled_from(sorted(AVERAGERS)), data=st.data())
def test_exchanges_apply_the_averagers_operator(network: Network, name: str, data) -> None:
    """Any graph and clusters; the mean stays where it is."""
    alpha = data.draw(st.integers(1, 4))
    samples = [max(1, int(count)) for count in network.shares.samples]
    world = classification(samples, network.clusters.members, network.graph, dtype=torch.float64)
    schedule = sdfeel.Schedule(1, 1, alpha)
    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr("warnings.warn", lambda *_, **__: None)
        own = simulation(world=world, averager=name, schedule=schedule)
    state, _ = begin(own)
    before = torch.randn(state.models.shape, generator=torch.Generator().manual_seed(0)).double()
    state.models = before.clone()
    (event,) = events(own)
    averager = event.mixing
    assert averager is own.algorithm.averager
    state.mix(event)
    expected = (before.numpy().T @ averager.operator).T
    scale = max(1.0, averager.amplification) * 1e-12
    np.testing.assert_allclose(state.models.numpy(), expected, atol=1e-11 + scale)
    shares = own.network.shares.cluster
    np.testing.assert_allclose(
        shares @ state.models.numpy(), shares @ before.numpy(), atol=1e-11 + scale
    )
    np.testing.assert_allclose(state.mean(), shares @ state.models.numpy(), atol=1e-12)


@pytest.mark.parametrize("pace", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("memory", ["reset", "keep"])
def test_going_on_from_what_was_saved_changes_no_bit(memory: str, pace: str) -> None:
    """After every event; memories of a period and of the whole run."""
    own = simulation(
        optimizer=sdfeel.Momentum(0.9, memory=memory), pace=pace, profile="paper-h10", seed=1
    )
    stream = events(own, 7)
    state, engine = begin(own)
    for number, event in enumerate(stream):
        trained = state.train([event], engine, lambda: False)
        state.take(event, trained)
        state.mix(event)
        state.begin(event)
        saved = state.save()
        assert ("clients.momentum.velocity" in saved) == (memory == "keep")
        copy = {name: rows.clone() for name, rows in saved.items()}
        other, _ = begin(own)
        other.restore(saved)
        for later in stream[number + 1 :]:
            trained = other.train([later], engine, lambda: False)
            other.take(later, trained)
            other.mix(later)
            other.begin(later)
        for name, rows in saved.items():  # what was saved is a copy
            assert torch.equal(rows, copy[name])
        if number == 0:
            whole = other
        assert torch.equal(whole.models, other.models)


def test_memories_that_are_kept_go_on_where_a_client_left_off() -> None:
    """With `keep` a second period differs from one with new memories; the absent keep theirs."""
    results = {}
    for memory in ("reset", "keep"):
        own = simulation(optimizer=sdfeel.Momentum(0.9, memory=memory), participation=0.5, seed=6)
        state, engine = begin(own)
        first, second = events(own, 2)
        took = [{int(i) for group in e.groups for i in group.clients} for e in (first, second)]
        assert took[0] - took[1]
        assert took[0] & took[1]
        for event in (first, second):
            take(state, engine, event)
            state.begin(event)
        results[memory] = (state.models, state.save().get("clients.momentum.velocity"))
    assert not torch.equal(results["reset"][0], results["keep"][0])
    velocity = results["keep"][1]
    assert velocity is not None
    order = [i for members in CLUSTERS for i in members]
    has_trained = [client in took[0] | took[1] for client in order]
    assert (velocity != 0).any(dim=1).tolist() == has_trained


def test_what_a_codec_loses_is_lost_on_the_way_up() -> None:
    own = simulation(codecs={"up": "float16"})
    (event,) = events(own)
    state, engine = begin(own)
    take(state, engine, event)
    start = own.start.numpy()
    clients = models_of(simulation(), event)
    weights = own.network.shares.within
    for server, members in enumerate(CLUSTERS):
        sent = [start + (clients[i] - start).astype(np.float16).astype(float) for i in members]
        expected = sum(weights[i] * w for i, w in zip(members, sent, strict=True))
        np.testing.assert_allclose(state.models[server].numpy(), expected, atol=1e-13)
        exact = sum(weights[i] * clients[i] for i in members)
        assert np.abs(expected - exact).max() > 1e-7  # something was lost


def test_a_change_that_a_codec_cannot_carry_is_named() -> None:
    own = simulation(codecs={"up": "float16"}, lr=1e9)
    state, engine = begin(own)
    with pytest.raises(sdfeel.InputError, match=r"65,504"):
        take(state, engine, *events(own))


def test_blocks_hold_more_clients_than_a_machine_has_threads() -> None:
    """A model as large as a block must still keep all cores busy."""
    own = simulation(world=classification([3] * 40, [list(range(40))], "path"))
    state, engine = begin(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "BLOCK", 1)
        most = state._training._block(engine, None)
        assert most == max(training.FEWEST, 2 * torch.get_num_threads())
