"""The rule history-clip at edges: the simulator's, kept in checkpoints, and what it tells."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy
from as_simulated import as_simulated
from harness import World, content, run_to_the_end
from harness import deploy as deploy_toy
from test_server_step import trainers
from test_simulator import make_data, make_model

from sdfeel.algorithm.methods.averaging import PERIODS, Rule
from sdfeel.deploy.client.torch_trainer import write_initial
from sdfeel.deploy.config import Averaging, Deployment, parse_deployment

CLIP: dict[str, Any] = {"averaging": {"rule": "history-clip"}}


def deploy(folder: Path, sizes: tuple[int, ...], **tables: Any) -> Deployment:
    table = content(sizes, tau1=3, tau2=2, alpha=2, periods=6, **{**CLIP, **tables})
    deployment = parse_deployment(table | {"seed": 5, "security": {"plaintext": True}}, folder)
    write_initial(deployment, make_model())
    return deployment


def simulated(deployment: Deployment, rule: Rule | None) -> np.ndarray:
    return as_simulated(deployment, make_model, make_data, averaging_rule=rule)


def test_it_is_the_default_of_a_deployment() -> None:
    assert Averaging().as_rule == Rule("history-clip", factor=1.0)


@pytest.mark.parametrize("factor", [1.0, 0.8])
def test_deployed_equals_simulated(tmp_path: Path, factor: float) -> None:
    """With one, two, three and five clients at an edge."""
    averaging = {"rule": "history-clip", "factor": factor}
    deployment = deploy(
        tmp_path, (1, 2, 3, 5), averaging=averaging, local={"lr": 0.1}, averager="metropolis"
    )
    deployed = run_to_the_end(deployment, trainers(deployment))
    rule = Rule("history-clip", factor=factor)
    np.testing.assert_allclose(deployed, simulated(deployment, rule), rtol=1e-5, atol=2e-6)
    assert np.abs(deployed - simulated(deployment, None)).max() > 1e-3


def test_kill_and_restart_change_nothing(tmp_path: Path) -> None:
    """The history is in the checkpoint: the same bits come out."""
    (tmp_path / "calm").mkdir()
    calm = deploy(tmp_path / "calm", (3,))
    expected = run_to_the_end(calm, trainers(calm))
    deployment = deploy(tmp_path, (3,))

    async def run() -> np.ndarray:
        async with World(deployment) as world:
            await world.start_all(trainers(deployment))
            for period in (1, 3, 4):
                await world.until(lambda least=period: world.edges["a"].done >= least)
                await world.kill("a")
                await world.start_edge("a")
                history = world.edges["a"].carrier.averaging.rows["history-clip.norms"].array()
                assert history.size == PERIODS
                assert (history > 0).sum() >= period
            await world.finish()
            return world.edges["a"].model.array()

    np.testing.assert_array_equal(asyncio.run(run()), expected[0])


@pytest.mark.parametrize(("size", "is_protected"), [(1, False), (2, False), (3, True)])
def test_a_cluster_that_is_not_protected_is_told(
    tmp_path: Path, size: int, is_protected: bool
) -> None:
    deployment = deploy_toy(tmp_path, sizes=(size,), periods=2, secure=False, **CLIP)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.finish()
            warnings = [w for w in world.edges["a"].warnings if w.kind == "few-clients"]
            lines = world.events("unprotected")
            assert bool(lines) is bool(warnings) is not is_protected
            if not is_protected:
                assert list(lines[0]["clients"]) == [f"c{n}" for n in range(size)]
                assert f"a cluster of {size}" in warnings[0].text

    asyncio.run(run())


@pytest.mark.parametrize("rule", ["mean", "history-clip"])
def test_a_poisoner_is_clipped(tmp_path: Path, rule: str) -> None:
    """One of three clients sends a constant far away; nothing but the rule holds it."""
    averaging = {"rule": rule, "bound": 0}
    deployment = deploy_toy(tmp_path, sizes=(3,), periods=10, secure=False, averaging=averaging)

    async def run() -> tuple[float, list[dict[str, Any]]]:
        async with World(deployment) as world:
            await world.start_edge("a")
            for number, client in enumerate(deployment.clients):
                trainer = toy.ToyTrainer(number, client.samples)
                trainer.poison = 1000.0 if number == 0 else None
                world.start_client(client.name, trainer)
            await world.finish()
            return float(np.abs(world.edges["a"].model.array()).max()), world.events("clipped")

    largest, lines = asyncio.run(run())
    assert (largest > 100) == (rule == "mean")
    assert ("c0" in {line["client"] for line in lines}) == (rule == "history-clip")
    assert all(line["norm"] > line["most"] > 0 for line in lines)
    assert len(lines) <= 3, "one line a minute about a client"
