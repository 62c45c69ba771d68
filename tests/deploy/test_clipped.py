"""Clipped and trimmed exchanges between edges: the simulator's, and a liar on the wire."""

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
from test_between import gates
from test_server_step import deploy, trainers, with_buffers
from test_simulator import make_data, make_model

from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError


def simulated(deployment: Deployment, make: Any = make_model) -> np.ndarray:
    codecs, optimizer = dict(deployment.codecs), deployment.server_optimizer
    return as_simulated(deployment, make, make_data, codecs=codecs, server_optimizer=optimizer)


@pytest.mark.parametrize(
    ("averager", "make", "tables"),
    [
        ({"name": "clipped", "factor": 0.4}, make_model, {}),
        ({"name": "clipped", "factor": 0.4}, with_buffers, {}),
        ({"name": "clipped", "factor": 0.4, "ends": "own"}, make_model, {"audit": False}),
        ({"name": "clipped", "factor": 0.6}, make_model, {"codecs": {"between": "int8"}}),
        ("clipped", make_model, {"server_optimizer": {"name": "fedadam", "eta": 0.02}}),
        ("trimmed", make_model, {"audit": False}),
        (
            {"name": "trimmed", "lies": 2},
            make_model,
            {"audit": False, "codecs": {"between": "int8"}},
        ),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_deployed_equals_simulated(
    tmp_path: Path, averager: Any, make: Any, tables: dict[str, Any]
) -> None:
    """What clients moved a server by is its history, from which both ends clip the same change."""
    deployment = deploy(tmp_path, make(), (1, 3, 2, 1), averager=averager, **tables)
    deployed = run_to_the_end(deployment, trainers(deployment, make))
    rough = {"atol": 4e-3} if "codecs" in tables else {"rtol": 1e-5, "atol": 5e-6}
    expected = simulated(deployment, make)
    np.testing.assert_allclose(deployed, expected, **rough)
    schedule = deployment.schedule.model_copy(update={"averager": "metropolis"})
    plain = simulated(deployment.model_copy(update={"schedule": schedule}), make)
    assert np.abs(expected - plain).max() > 1e-2, "the rule changes something"


def test_the_history_is_in_the_checkpoint(tmp_path: Path) -> None:
    """All edges are killed, and end at the same bits: also what the next exchanges clip to."""
    options: dict[str, Any] = {"periods": 6, "averager": {"name": "clipped", "factor": 0.3}}
    (tmp_path / "calm").mkdir()
    calm = deploy_toy(tmp_path / "calm", **options)
    expected = run_to_the_end(calm)
    deployment = deploy_toy(tmp_path, **options)

    async def run() -> list[np.ndarray]:
        async with World(deployment) as world:
            gated = gates(deployment, toy.SIZE, period=4)
            await world.start_all(gated)
            edges = world.edges
            await world.until(lambda: all(edge.done == 3 for edge in edges.values()))
            await world.until(lambda: not any(e.carrier.saver.is_writing for e in edges.values()))
            for name in [*world.edges, *world.clients]:
                await world.kill(name)
            for trainer in gated.values():
                trainer.gate.set()
            await world.start_all()
            await world.finish()
            assert world.events("exchange-clipped")
            assert world.audit() > 0
            return [edge.model.array() for edge in world.edges.values()]

    for found, wanted in zip(asyncio.run(run()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"averager": "cliped"}, "schedule.averager = 'cliped': did you mean 'clipped'"),
        ({"averager": {"name": "clipped", "factr": 1}}, "schedule.averager.factr = 1: .*'factor'"),
        ({"averager": {"name": "clipped", "factor": -1}}, "averager.factor = -1"),
        ({"averager": "all-reduce", "trust": "members"}, "'all-reduce': hides or enlarges"),
        ({"averager": "finite-time", "trust": "members"}, "'finite-time': hides or enlarges"),
        ({"averager": "chebyshev", "trust": "members"}, "'chebyshev': hides or enlarges"),
        ({"trust": "nobody"}, "trust"),
        ({"averager": "trimmed"}, "audit = True: .* the weighted mean, which Trimmed"),
        ({"averager": {"name": "clipped", "ends": "own"}}, "audit = True: .* ends='own'"),
    ],
    ids=str,
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Topology(parse_deployment(content((1, 1, 1), **change), tmp_path))


@pytest.mark.parametrize("averager", ["paper", "metropolis", "clipped", "trimmed"])
def test_who_trusts_members_only_has_these(tmp_path: Path, averager: str) -> None:
    table = content((1, 1, 1), averager=averager, trust="members", audit=False)
    assert parse_deployment(table, tmp_path).trust == "members"


def test_trimming_needs_rounds(tmp_path: Path) -> None:
    pace = {"name": "asynchronous", "deadline": 1.0}
    table = content((1, 1), averager="trimmed", pace=pace, audit=False)
    with pytest.raises(InputError, match="averager = 'trimmed': needs rounds of all servers"):
        Topology(parse_deployment(table, tmp_path))
