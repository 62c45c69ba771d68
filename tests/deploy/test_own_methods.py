"""Averaging rules and corrections of the user's in a deployment file, by import path."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_drift
from as_simulated import as_simulated
from harness import World, content, run_to_the_end
from own_methods import Careful, Slowed, halfway
from test_server_step import deploy, trainers
from test_simulator import make_data, make_model

from sdfeel.algorithm.methods.averaging import GivenRule
from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError


@pytest.mark.parametrize(
    ("rule", "own"),
    [
        ({"name": "own_methods:Slowed", "beta": 0.25}, Slowed(beta=0.25)),
        ("own_methods:halfway", GivenRule(halfway)),
    ],
    ids=["class", "function"],
)
def test_a_rule_is_the_simulators(tmp_path: Path, rule: Any, own: Any) -> None:
    deployment = deploy(
        tmp_path, make_model(), (1, 3, 2), averager="metropolis", averaging={"rule": rule}
    )
    deployed = run_to_the_end(deployment, trainers(deployment))
    expected = as_simulated(deployment, make_model, make_data, averaging_rule=own)
    np.testing.assert_allclose(deployed, expected, rtol=1e-5, atol=5e-6)
    plain = as_simulated(deployment, make_model, make_data)
    assert np.abs(expected - plain).max() > 1e-2


def test_its_rows_are_in_the_checkpoint(tmp_path: Path) -> None:
    averaging = {"rule": "own_methods:Slowed"}
    (tmp_path / "calm").mkdir()
    calm = deploy(tmp_path / "calm", make_model(), (3,), averaging=averaging)
    expected = run_to_the_end(calm, trainers(calm))
    deployment = deploy(tmp_path, make_model(), (3,), averaging=averaging)

    async def run() -> np.ndarray:
        async with World(deployment) as world:
            await world.start_all(trainers(deployment))
            await world.until(lambda: world.edges["a"].done >= 3)
            await world.kill("a")
            edge = await world.start_edge("a")
            await world.finish()
            assert edge.carrier.averaging.rows["slowed.count"].array() == [18.0]
            return edge.model.array()

    np.testing.assert_array_equal(asyncio.run(run()), expected[0])


def test_a_correction_is_the_simulators(tmp_path: Path) -> None:
    tables = {"correction": "own_methods:Careful", "averager": "metropolis"}
    deployment = test_drift.deploy(tmp_path, make_model(), (1, 3, 2), **tables)
    assert deployment.correction == Careful()
    deployed = run_to_the_end(deployment, test_drift.trainers(deployment))
    expected = test_drift.simulated(deployment)
    np.testing.assert_allclose(deployed, expected, rtol=2e-5, atol=1e-5)
    assert np.abs(expected - test_drift.simulated(deployment, correction="two-level")).max() > 1e-4


@pytest.mark.parametrize(
    ("tables", "named"),
    [
        ({"averaging": {"rule": "medain"}}, "averaging.rule = 'medain': did you mean 'median'"),
        ({"averaging": {"rule": "own_methods:gone"}}, "averaging.rule.*cannot be imported"),
        ({"averaging": {"rule": "own_methods:Careful"}}, "must make a AveragingRule"),
        ({"correction": "own_methods:Slowed"}, "correction.*must make a Correction"),
        ({"correction": "own_methods:Forgetful"}, "remembers more: a deployment carries"),
        (
            {"correction": "clients", "averaging": {"rule": "own_methods:Slowed"}},
            "correction = 'clients': needs servers that take the mean .*slowed",
        ),
    ],
    ids=str,
)
def test_mistakes_are_named(tmp_path: Path, tables: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Topology(parse_deployment(content((1, 1)) | tables, tmp_path))
