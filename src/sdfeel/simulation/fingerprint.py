"""What decides what a run computes, as a hash: no other run goes on from its checkpoint."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from torch import Tensor

from sdfeel.algorithm.schemes import Algorithm
from sdfeel.clock import LatencyProfile
from sdfeel.simulation.named import name_of
from sdfeel.simulation.problem import Problem

__all__ = ["data_digests", "fingerprint"]


def fingerprint(
    algorithm: Algorithm, problem: Problem, profile: LatencyProfile, start: Tensor, data: bytes
) -> str:
    """A hash of everything that decides what a run computes.

    The number of steps and the engine are left out: a run may be made longer. `data` are the
    digests of all clients' data, in client order.
    """
    present = algorithm.participation
    about: dict[str, Any] = {
        "scheme": algorithm.scheme,
        "schedule": vars(algorithm.schedule),
        "averager": algorithm.averager.name,
        "exchanges": [algorithm.averager.steps, algorithm.averager.generator.tolist()],
        "participation": [float(present.beta), present.drawn, present.reach],
        "clusters": algorithm.network.clusters.members,
        "links": sorted(sorted(link) for link in algorithm.network.graph.edges()),
        "profile": repr(profile),
        "batch_size": problem.batch_size,
        "seed": problem.seed,
        "layout": [problem.layout.names, problem.layout.shapes, str(problem.layout.dtype)],
    }
    for what in ("rule", "local", "rate", "pace"):
        value = getattr(algorithm, what)
        about[what] = None if value is None else name_of(value)
    about["codecs"] = {way: name_of(codec) for way, codec in algorithm.codecs.items()}
    about["loss"] = name_of(problem.loss)
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(_bytes(start))
    digest.update(data)
    return digest.hexdigest()


def data_digests(problem: Problem) -> bytes:
    """A hash of each client's data, 32 bytes each: what all ranks together have to agree on."""
    digests = b""
    for client in range(problem.data.clients):
        inputs, targets = problem.data.client(client)
        digests += hashlib.sha256(_bytes(inputs) + _bytes(targets)).digest()
    return digests


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
