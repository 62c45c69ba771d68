"""Who is a member is asked by period: another file from a period on needs no other code."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
from twin_world import make_deployment

from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.deploy.cluster.averaging import ClusterMean, Upload
from sdfeel.deploy.members import Members
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.topology import Topology

LINKS = [("e00", "e01"), ("e01", "e02"), ("e00", "e02")]


class Changing(Topology):
    """From the third period on a client has ten times as many samples."""

    def at(self, period: int) -> Members:
        if period < 3:
            return super().at(period)
        deployment = self.deployment
        first, *others = deployment.clients
        more = first.model_copy(update={"samples": 10 * first.samples})
        return Members(deployment.model_copy(update={"clients": [more, *others]}))


def test_clients_count_as_they_do_in_their_period() -> None:
    topology = Changing(make_deployment([2, 1, 1], LINKS, 4, "paper", guests=False))
    begun = as_vector(np.zeros(3))
    uploads = {f"c{n}": Upload(as_vector(np.full(3, n)), 1.0, steps=1, begun=begun) for n in (0, 1)}

    def mean(period: int) -> float:
        averaging = ClusterMean(topology, "a", Rule(), 0.0, Path(), lambda _: None, {})
        move = averaging.move(uploads, begun, 1.0, period, dict.fromkeys(uploads, 0))
        return float(asyncio.run(move).applied(begun).array()[0])

    samples = [topology.at(1).samples(name) for name in uploads]
    assert mean(2) == np.float32(samples[1] / sum(samples))
    assert mean(3) == np.float32(samples[1] / (10 * samples[0] + samples[1]))


def test_shares_and_agreement_on_them_follow_the_period() -> None:
    topology = Changing(make_deployment([2, 1, 1], LINKS, 4, "paper", guests=False))
    before, after = topology.at(2), topology.at(3)
    assert after.share("e00") > before.share("e00")
    assert after.weights_digest != before.weights_digest, "edges that differ do not mix"
    assert before.home("e00") == {"c0", "c1"}
