"""What decides what a run computes, as a hash: no other run goes on from its checkpoint."""

from __future__ import annotations

import hashlib
import json
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor, nn

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.rates import Given
from sdfeel.clock import LatencyProfile
from sdfeel.engines.problem import Problem
from sdfeel.tables import name_of
from sdfeel.trees import leaves


def fingerprint(
    algorithm: Algorithm, problem: Problem, profile: LatencyProfile, start: Tensor, data: bytes
) -> str:
    """A hash of everything that decides what a run computes.

    The number of steps and the engine are left out: a run may be made longer. `data` are the
    digests of all clients' data, in client order.
    """
    present = algorithm.participation
    about: dict[str, Any] = {
        "scheme": algorithm.scheme.name,
        "schedule": {
            n: _identity(v) if callable(v) else v for n, v in vars(algorithm.schedule).items()
        },
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
    if algorithm.network.changes:
        turns = algorithm.network.turns
        about["graphs"] = turns or _identity(algorithm.network.graphs)  # type: ignore[attr-defined]
    about["methods"] = {where: _identity(method) for where, method in algorithm.parts.items()}
    about["rate"], about["pace"] = _identity(algorithm.rate), _identity(algorithm.pace)
    about["codecs"] = {way: _identity(codec) for way, codec in algorithm.codecs.items()}
    about["loss"] = _identity(problem.loss)
    if problem.about:
        about["also"] = problem.about
    if problem.data.fresh:
        about["fresh"] = True
    if problem.hooks:
        about["hooks"] = {at: [_identity(h) for h in hooks] for at, hooks in problem.hooks.items()}
    digest = hashlib.sha256(json.dumps(about).encode())
    digest.update(_bytes(start))
    digest.update(data)
    return digest.hexdigest()


def _identity(value: object) -> list[str]:
    """List what tells a user's function or object from another: its text, code and state."""
    words = [name_of(value)]
    if isinstance(value, FunctionType):
        code = value.__code__
        captured = [cell.cell_contents for cell in value.__closure__ or ()]
        words += [code.co_code.hex(), repr(_without_code(code.co_consts)), repr(code.co_names)]
        words += [name_of(each) for each in (*captured, *(value.__defaults__ or ()))]
    elif isinstance(value, Given):
        words = _identity(value.function)
    elif not isinstance(value, nn.Module) and hasattr(value, "__dict__"):
        for key, captured in sorted(vars(value).items()):
            words += [key, *(_identity(captured) if callable(captured) else [name_of(captured)])]
    return words


def _without_code(constants: tuple[object, ...]) -> list[object]:
    """Code inside code says where it lies in memory."""
    return [c.co_code.hex() if isinstance(c, CodeType) else c for c in constants]


def data_digests(problem: Problem) -> bytes:
    """A hash of each client's data, 32 bytes each: what all ranks together have to agree on."""
    digests = b""
    for client in range(problem.data.clients):
        inputs, targets = problem.data.client(client)
        digest = hashlib.sha256()
        for tensor in (*leaves(inputs), *leaves(targets)):
            digest.update(_bytes(tensor))
        digests += digest.digest()
    return digests


def _bytes(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().numpy().tobytes()
