"""The state of a run: what aggregations do to models, and that nothing else shows in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from worlds import Problem as World
from worlds import classification, networks

import sdfeel
from sdfeel import AVERAGERS, Network
from sdfeel.algorithm.pace import Event
from sdfeel.simulation import arrival as room
from sdfeel.simulation.engines.choose import ENGINES
from sdfeel.simulation.engines.engine import Engine
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation
from sdfeel.simulation.state import State

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

SAMPLES = (12, 5, 9, 20, 4, 7)
CLUSTERS = [[0, 3], [4, 1, 2], [5]]
SOME = np.array([True, True, False, True, True, False])


def simulation(world: World | None = None, **options: object) -> Simulation:
    world = world or classification(SAMPLES, CLUSTERS, "path", hidden=5, dtype=torch.float64)
    given = {"schedule": sdfeel.Schedule(3, 2, 2), "lr": 0.1, "batch_size": 6, "seed": 2, **options}
    return Simulation.assemble(
        world.model, world.datasets, Settings.of(given), network=world.network
    )


def begin(own: Simulation, engine: str = "vectorised") -> tuple[State, Engine]:
    state = State(own.problem, own.algorithm, own.start, own.ranks, own.placement)
    return state, ENGINES[engine](own.problem)


def event(own: Simulation, clients: np.ndarray | None = None) -> Event:
    first = own.algorithm.pace.next(1, own.algorithm)
    return first if clients is None else replace(first, clients=clients)


def models_of(own: Simulation, asked: Event) -> dict[int, np.ndarray]:
    """Each present client's model at the end of the period, trained alone by the reference."""
    found = {}
    for client in np.flatnonzero(asked.clients):
        state, engine = begin(own, "reference")
        alone = replace(asked, clients=np.arange(len(asked.clients)) == client)
        state.local_updates(engine, alone, asked.first, asked.last)
        server = own.algorithm.network.clusters.server_of[client]
        found[int(client)] = state.models[server].numpy()
    return found


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_servers_take_the_weighted_mean_of_those_present(engine: str) -> None:
    own = simulation(world=classification(SAMPLES, CLUSTERS, "path", dtype=torch.float64))
    asked = event(own, SOME)
    state, engine_ = begin(own, engine)
    before = state.models.clone()
    losses = state.local_updates(engine_, asked, asked.first, asked.last)
    engine_.close()
    assert losses is not None
    assert losses.shape == (4, 3)
    clients = models_of(own, asked)
    weights = own.network.shares.within_present(SOME)
    for server, members in enumerate(CLUSTERS[:2]):
        expected = sum(weights[i] * clients[i] for i in members if SOME[i])
        np.testing.assert_allclose(state.models[server].numpy(), expected, atol=1e-13)
    assert torch.equal(state.models[2], before[2])  # nobody came: it keeps its model


def test_a_rule_takes_the_place_of_the_mean() -> None:
    seen = []

    def rule(models: Tensor, weights: Tensor, server: Tensor) -> Tensor:
        seen.append((models.clone(), weights.clone(), server.clone()))
        return models.max(dim=0).values

    own = simulation(averaging_rule=rule)
    asked = event(own, np.arange(6) != 2)
    state, engine = begin(own)
    state.local_updates(engine, asked, asked.first, asked.last)
    clients = models_of(replace(own, algorithm=replace(own.algorithm, rule=None)), asked)
    models, weights, server = seen[1]
    np.testing.assert_allclose(models.numpy(), np.stack([clients[4], clients[1]]), atol=1e-13)
    np.testing.assert_allclose(weights.numpy(), np.array([4, 5]) / 9, rtol=1e-12)
    assert torch.equal(server, own.start)
    assert torch.equal(state.models[1], models.max(dim=0).values)


@pytest.mark.parametrize("engine", sorted(ENGINES))
@pytest.mark.parametrize("rule", ["sgd", "momentum"])
def test_blocks_and_pauses_show_in_no_bit(monkeypatch, engine: str, rule: str) -> None:
    """Clients in blocks below, at and above a cluster's size; a period in one leg or in three."""
    world = classification(SAMPLES, CLUSTERS, "path", hidden=5)
    own = simulation(world=world, local=rule)
    found = []
    for block, legs in ((6, [(1, 3)]), (1, [(1, 3)]), (2, [(1, 1), (2, 2), (3, 3)]), (3, [(1, 3)])):
        monkeypatch.setattr(State, "block", lambda *_, most=block: most)
        state, engine_ = begin(own, engine)
        for first, last in legs:
            state.local_updates(engine_, event(own), first, last)
        engine_.close()
        found.append(state.models)
    for other in found[1:]:
        assert torch.equal(other, found[0])


def test_a_rule_sees_whole_clusters_whatever_the_block(monkeypatch) -> None:
    monkeypatch.setattr(State, "block", lambda *_, most=1: most)
    sizes = []

    def rule(models: Tensor, weights: Tensor, server: Tensor) -> Tensor:
        sizes.append(len(models))
        return weights.to(models) @ models

    own = simulation(averaging_rule=rule)
    state, engine = begin(own)
    state.local_updates(engine, event(own), 1, 3)
    assert sizes == [2, 3, 1]


def test_a_client_s_model_exists_only_in_its_block(monkeypatch) -> None:
    """Memory is that of servers and of a block, not of clients."""
    rows = []
    own = simulation()
    state, engine = begin(own)
    local_updates = engine.local_updates
    monkeypatch.setattr(
        engine,
        "local_updates",
        lambda models, *more: rows.append(len(models)) or local_updates(models, *more),
    )
    monkeypatch.setattr(State, "block", lambda *_, most=2: most)
    state.local_updates(engine, event(own), 1, 3)
    assert rows == [2, 2, 2]
    assert set(state.save(event(own))) == {"servers.model"}
    state.local_updates(engine, replace(event(own), first=4, last=6), 4, 5)
    assert set(state.save(event(own))) == {"servers.model", "period.model"}


def test_a_signal_between_two_blocks_leaves_the_period_s_beginning(monkeypatch) -> None:
    monkeypatch.setattr(State, "block", lambda *_, most=2: most)
    own = simulation()
    state, engine = begin(own)
    before = state.models.clone()
    assert state.local_updates(engine, event(own), 1, 3, pause=lambda: True) is None
    assert torch.equal(state.models, before)
    assert set(state.save(event(own))) == {"servers.model"}


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
    averager = own.algorithm.averager
    state.exchange(averager)
    expected = (before.numpy().T @ averager.operator).T
    scale = max(1.0, averager.amplification) * 1e-12
    np.testing.assert_allclose(state.models.numpy(), expected, atol=1e-11 + scale)
    shares = own.network.shares.cluster
    np.testing.assert_allclose(
        shares @ state.models.numpy(), shares @ before.numpy(), atol=1e-11 + scale
    )


def test_the_mean_is_that_of_all_clients_in_the_middle_of_a_period_too() -> None:
    own = simulation()
    state, engine = begin(own)
    state.local_updates(engine, event(own), 1, 2)
    middle = replace(event(own), last=2)
    clients = models_of(own, middle)
    expected = sum(share * clients[i] for i, share in enumerate(own.network.shares.client))
    before = state.models.clone()
    np.testing.assert_allclose(state.mean(event(own)).numpy(), expected, atol=1e-13)
    assert torch.equal(state.models, before)  # asking changes nothing
    state.local_updates(engine, event(own), 3, 3)
    shares = own.network.shares.cluster
    np.testing.assert_allclose(
        state.mean(event(own)).numpy(), shares @ state.models.numpy(), atol=1e-13
    )


@pytest.mark.parametrize("memory", ["reset", "keep"])
@pytest.mark.parametrize("last", [2, 3])
def test_going_on_from_what_was_saved_changes_no_bit(memory: str, last: int) -> None:
    """In the middle of a period and at its end; memories of a period and of the whole run."""
    own = simulation(local=sdfeel.Momentum(0.9, memory=memory))
    (state, engine), (other, _) = begin(own), begin(own)
    state.local_updates(engine, event(own), 1, last)
    saved = state.save(event(own))
    assert ("clients.velocity" in saved) == (memory == "keep")
    assert ("period.velocity" in saved) == (memory == "reset" and last == 2)
    kept = {name: rows.clone() for name, rows in saved.items()}
    other.restore(kept, event(own))
    second = replace(event(own), first=4, last=6)
    for each in (state, other):
        if last == 2:
            each.local_updates(engine, event(own), 3, 3)
        each.local_updates(engine, second, 4, 6)
    assert torch.equal(state.models, other.models)
    for name, rows in saved.items():  # what was saved is a copy
        assert torch.equal(rows, kept[name])


def test_memories_that_are_kept_go_on_where_a_client_left_off() -> None:
    """With `keep` a second period differs from one with new memories; the absent keep theirs."""
    results = {}
    for memory in ("reset", "keep"):
        own = simulation(local=sdfeel.Momentum(0.9, memory=memory))
        state, engine = begin(own)
        state.local_updates(engine, event(own), 1, 3)
        state.local_updates(engine, replace(event(own, SOME), first=4, last=6), 4, 6)
        results[memory] = (state.models, state.save(event(own)).get("clients.velocity"))
    assert not torch.equal(results["reset"][0], results["keep"][0])
    velocity = results["keep"][1]
    assert velocity is not None
    assert (velocity != 0).any(dim=1).all()


def test_what_a_codec_loses_is_lost_on_the_way_up() -> None:
    own = simulation(codecs={"up": "float16"})
    asked = event(own)
    state, engine = begin(own)
    state.local_updates(engine, asked, 1, 3)
    start = own.start.numpy()
    clients = models_of(simulation(), asked)
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
        state.local_updates(engine, event(own), 1, 3)


def test_blocks_hold_more_clients_than_a_machine_has_threads() -> None:
    """A model as large as a block must still keep all cores busy."""
    own = simulation(world=classification([3] * 40, [list(range(40))], "path"))
    state, engine = begin(own)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "BLOCK", 1)
        assert state.block(engine) == max(room.FEWEST, 2 * torch.get_num_threads())
