"""Corrections in a deployment are the simulator's, also when somebody is started again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toy
from as_simulated import as_simulated
from harness import World, content, run_to_the_end
from test_simulator import make_data, make_model
from torch import nn
from twin_world import SIZE, Still, TwinWorld, make_deployment, make_edges_cheap, trouble
from virtual import VirtualLoop

from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.client.drift import ClientDrift
from sdfeel.deploy.client.torch_trainer import TorchTrainer, write_initial
from sdfeel.deploy.cluster import drift as drift_module
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames
from sdfeel.errors import InputError


def with_buffers() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def deploy(folder: Path, model: nn.Module, sizes: tuple[int, ...], **tables: Any) -> Deployment:
    defaults: dict[str, Any] = {"tau1": 3, "tau2": 2, "alpha": 2, "periods": 8}
    tables["local"] = {"lr": 0.1, **tables.get("local", {})}
    table = content(sizes, security={"plaintext": True}, **{**defaults, **tables})
    deployment = parse_deployment(table | {"seed": 5}, folder)
    write_initial(deployment, model)
    return deployment


def trainer(deployment: Deployment, number: int, make: Any = make_model) -> TorchTrainer:
    data = make_data(number, deployment.clients[number].samples)
    own = {"rule": deployment.local.rule, "correction": deployment.correction}
    return TorchTrainer(make(), data, number, seed=5, lr=0.1, batch_size=7, **own)


def trainers(deployment: Deployment, make: Any = make_model) -> dict[str, Any]:
    return {c.name: trainer(deployment, n, make) for n, c in enumerate(deployment.clients)}


def simulated(deployment: Deployment, make: Any = make_model, **changed: Any) -> np.ndarray:
    settings: dict[str, Any] = {
        "optimizer": deployment.local.rule,
        "correction": deployment.correction,
        "server_optimizer": deployment.server_optimizer,
        "codecs": dict(deployment.codecs),
    }
    return as_simulated(deployment, make, make_data, **{**settings, **changed})


@pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")
@pytest.mark.parametrize(
    ("name", "tables", "make"),
    [
        ("two-level", {"averager": "paper"}, make_model),
        ("two-level", {"averager": "all-reduce", "tau2": 1}, with_buffers),
        ("clients", {"averager": "metropolis"}, make_model),
        ("servers", {"averager": "metropolis"}, make_model),
        ("mtgc", {"averager": "paper", "local": {"name": "momentum"}}, make_model),
        ("two-level", {"averager": "metropolis", "codecs": {"up": "int8"}}, make_model),
        ("two-level", {"server_optimizer": {"name": "fedavgm", "momentum": 0.3}}, make_model),
    ],
    ids=["two-level", "buffers", "clients", "servers", "mtgc-momentum", "int8", "fedavgm"],
)
def test_deployed_equals_simulated(
    tmp_path: Path, name: str, tables: dict[str, Any], make: Any
) -> None:
    deployment = deploy(tmp_path, make(), (1, 3, 2), correction={"name": name}, **tables)
    deployed = run_to_the_end(deployment, trainers(deployment, make))
    # What int8 rounds falls to the other side where two means differ in the last bit.
    close = {"atol": 4e-3} if "codecs" in tables else {"rtol": 2e-5, "atol": 1e-5}
    np.testing.assert_allclose(deployed, simulated(deployment, make), **close)
    without = simulated(deployment, make, correction=None)
    assert np.abs(deployed - without).max() > (8e-3 if "codecs" in tables else 1e-3)


def z_of(world: World, name: str) -> np.ndarray:
    drift = world.clients[name]._drift
    assert drift is not None
    return drift._z.astype(float)


def check_sums(world: World) -> None:
    """Neither z nor y moves a weighted mean: their weighted sums are 0."""
    topology, rows = Topology(world.deployment), []
    for edge in world.edges.values():
        drift = edge.carrier.drift  # type: ignore[attr-defined]
        rows.append(topology.at(0).share(edge.name) * drift.y.array().astype(float))
        home = [client for client in world.deployment.clients if client.edge == edge.name]
        total = sum(client.samples * z_of(world, client.name) for client in home)
        size = sum(client.samples * np.abs(z_of(world, client.name)).max() for client in home)
        assert np.abs(total).max() <= 1e-4 * size
        assert size > 0 or len(home) == 1
    assert np.abs(sum(rows)).max() < 1e-4 * np.abs(rows).max()
    assert np.abs(rows).max() > 0


def test_kill_and_restart_of_an_edge_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "calm").mkdir()
    expected = []
    for folder in (tmp_path / "calm", tmp_path):
        deployment = deploy(folder, make_model(), (3,), correction="two-level", tau2=1)

        async def run(deployment: Deployment = deployment) -> np.ndarray:
            async with World(deployment) as world:
                await world.start_all(trainers(deployment))
                for period in () if deployment.folder.name == "calm" else (1, 3, 6):
                    await world.until(lambda least=period: world.edges["a"].done >= least)
                    await world.kill("a")
                    await world.start_edge("a")
                await world.finish()
                assert not world.events("correction-begun-anew")
                return world.edges["a"].model.array()

        expected.append(asyncio.run(run()))
    np.testing.assert_array_equal(*expected)


@pytest.mark.parametrize("killed", ["c2", "b"])
def test_sums_stay_0_whoever_is_started_again(tmp_path: Path, killed: str) -> None:
    """A client has lost its row: its whole cluster begins anew. An edge has y on its disk."""
    deployment = deploy(tmp_path, make_model(), (2, 3, 1), correction="two-level", periods=60)

    async def run() -> None:
        async with World(deployment) as world:
            own = trainers(deployment)
            await world.start_all(own)
            for period in (9, 25):
                await world.until(lambda least=period: world.edges["b"].done >= least)
                await world.kill(killed)
                if killed == "b":
                    await world.start_edge("b")
                else:
                    world.start_client(killed, trainer(deployment, 2))
            await world.until(lambda: world.edges["b"].done >= 40)
            await world.finish()
            anew = [fact["clients"] for fact in world.events("correction-begun-anew")]
            if killed == "c2":
                assert anew
                assert all("c2" in clients for clients in anew)
            check_sums(world)
            epochs = {client.edge: set() for client in deployment.clients}  # type: ignore[var-annotated]
            for client in deployment.clients:
                drift = world.clients[client.name]._drift
                assert drift is not None
                epochs[client.edge].add(drift.epoch)
            assert all(len(found) == 1 for found in epochs.values())

    asyncio.run(run())


class Slow(TorchTrainer):
    """Comes in a later period with its work."""

    def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
        time.sleep(0.06)
        return super().train(model, first, steps)


def test_work_that_counts_later_is_learned_of_later(tmp_path: Path) -> None:
    """z still sums to 0 after the slow client has answered for earlier periods."""
    short = {"round": 0.05, "exchange": 0.06}
    deployment = deploy(
        tmp_path, make_model(), (3,), correction="clients", periods=150, deadlines=short
    )

    async def run() -> None:
        async with World(deployment) as world:
            own = trainers(deployment)
            data = make_data(1, deployment.clients[1].samples)
            own["c1"] = Slow(
                make_model(), data, 1, 5, lr=0.1, batch_size=7, correction=deployment.correction
            )
            await world.start_all(own)
            await world.finish()
            assert world.events("taken-late")
            assert not world.events("correction-begun-anew")
            slow = world.clients["c1"]._drift
            assert slow is not None
            assert slow.learned > 0
            # Whoever had no task after its last work has not heard of it: only c1 can be that.
            edge = world.edges["a"].carrier.drift  # type: ignore[attr-defined]
            heard = {name: client._drift for name, client in world.clients.items()}
            assert all(d is not None and d.learned <= edge.counted[n][0] for n, d in heard.items())

    asyncio.run(run())


# What comes over the wire.


def client_drift(folder: Path, correction: str = "two-level") -> ClientDrift:
    deployment = deploy(folder, make_model(), (1, 1), correction=correction)
    drift = ClientDrift.of(deployment, "c0", trainer(deployment, 0))
    assert drift is not None
    return drift


def row(name: str, size: int, period: int = 1, value: float = 1.0) -> v1.Row:
    return v1.Row(name=name, model=frames.header(as_vector(np.full(size, value)), period))


@pytest.mark.parametrize(
    ("name", "size", "value", "kind"),
    [
        ("z", 83, 1.0, "row"),
        ("", 83, 1.0, "row"),
        ("y", 82, 1.0, "shape"),
        ("move", 84, 1.0, "shape"),
        ("move", 83, np.nan, "not-finite"),
        ("y", 83, 1e20, "magnitude"),
    ],
)
def test_rows_are_checked_as_models_are(
    tmp_path: Path, name: str, size: int, value: float, kind: str
) -> None:
    drift = client_drift(tmp_path)
    with pytest.raises(Refused) as refusal:
        drift.open(row(name, size, value=value)).begin()
    assert refusal.value.kind == kind


def test_a_task_without_its_y_is_refused_and_no_old_move_is_learned(tmp_path: Path) -> None:
    drift = client_drift(tmp_path)
    ones = as_vector(np.ones(83))

    def begin(task: v1.Task, **rows: int) -> None:
        for name, period in rows.items():
            drift.take(row(name, 83, period), ones)
        drift.expect(task)
        drift.begin(task)
        drift.uploaded(task.period, np.zeros(83, dtype="f4"))

    for wrong in ({}, {"y": 2}, {"move": 1}):
        with pytest.raises(Refused, match="without its y"):
            begin(v1.Task(period=1), **wrong)
    begin(v1.Task(period=1), y=1)
    begin(v1.Task(period=2, counted=1), y=2, move=1)
    assert (drift.learned, drift._z.any()) == (0, False), "a move of another task"
    begin(v1.Task(period=3, counted=2), y=3, move=3)
    assert drift.learned == 2
    np.testing.assert_allclose(drift._z, -1 / 0.3, rtol=1e-6)
    begin(v1.Task(period=4, counted=2, epoch=1), y=4, move=4)
    assert (drift.epoch, drift.learned, drift._z.any()) == (1, 0, False)


def test_rows_of_a_later_task_do_not_disturb_this_one(tmp_path: Path) -> None:
    drift = client_drift(tmp_path)
    first, second = v1.Task(period=1), v1.Task(period=2)
    drift.take(row("y", 83, 1), as_vector(np.ones(83)))
    drift.expect(first)
    drift.take(row("y", 83, 2), as_vector(np.zeros(83)))
    drift.begin(first)
    shared = drift.trainer._shared["two-level.common"][0]  # type: ignore[attr-defined]
    assert shared.eq(1).all()
    drift.expect(second)
    drift.begin(second)


def test_rows_without_a_correction_are_refused(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, make_model(), (1,))
    client = ClientProgram(deployment, "c0", trainer(deployment, 0))
    with pytest.raises(Refused, match="no correction"):
        client._open_row(row("y", 83))


def test_a_trainer_must_let_its_gradients_be_shifted(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, make_model(), (1,), correction="clients")
    with pytest.raises(InputError, match="correction = 'ToyTrainer': needs a trainer"):
        ClientProgram(deployment, "c0", toy.ToyTrainer(0, deployment.clients[0].samples))


# Faults, on the network in memory.


class Shifted(Still):
    """Leaves the model as it is; a correction may shift the gradients that it has not got."""

    trained = SIZE

    def correct(self, rows: Any) -> None:
        pass


class CorrectedWorld(TwinWorld):
    def trainer(self, name: str) -> Any:
        return Shifted(self.deployment.client(name).samples)


@pytest.mark.parametrize("averager", ["metropolis", "chebyshev", "all-reduce"])
def test_y_is_what_links_have_moved_whatever_fails(
    averager: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was decided late, made good or taken back: clients move nothing here."""
    make_edges_cheap(monkeypatch)
    monkeypatch.setattr(drift_module, "trained_values", lambda _path, size: size)
    links = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]
    deployment = make_deployment(
        (1, 1, 1), links, 4, averager, alpha=2, guests=False, correction="servers"
    )
    topology, kinds = Topology(deployment), set()
    correction = topology.correction
    assert correction is not None
    assert correction.gamma is not None
    for seed in range(25):
        loop = VirtualLoop(seed, longest=0.3)

        async def main(seed: int = seed, loop: VirtualLoop = loop) -> CorrectedWorld:
            world = CorrectedWorld(deployment, topology, seed, loop)
            await world.start_all()
            await trouble(world, 1.5, 0.2)
            await world.finish(400.0)
            return world

        world = loop.run(main())
        kinds |= set(world.events)
        for name, disk in world.disks.items():
            checkpoint = disk.found
            assert checkpoint is not None
            moved = disk.first.array().astype(float) - checkpoint.model.array()
            y = checkpoint.rows["servers.y"].array()
            np.testing.assert_allclose(
                y * 0.01, correction.gamma * moved, atol=2e-5, err_msg=f"{name}, seed {seed}"
            )
    assert {"repaired", "taken-back"} & kinds, "else nothing was put to the test"
