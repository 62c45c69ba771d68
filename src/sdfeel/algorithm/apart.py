"""Clients without servers: what goes with it, and those who never exchange anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.pace import Synchronous
from sdfeel.errors import InputError
from sdfeel.network import Averager

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.correction import Correction

__all__ = ["check_apart", "no_exchange"]


def no_exchange(graph: nx.Graph, shares: NDArray[np.float64], alpha: int) -> Averager:  # noqa: ARG001
    """Everybody keeps what it has, at no cost."""
    nothing = np.zeros((len(shares), len(shares)))
    return Averager("none", "neighbours", shares, nothing, (), 1.0, 0.0)


def check_apart(algorithm: Algorithm, correction: Correction | None) -> None:
    """Refuse by name what needs a server beside its clients."""
    name = algorithm.scheme
    for field, value in {"averaging_rule": algorithm.rule, "server": algorithm.server}.items():
        if value is not None:
            raise InputError(field, value, f"scheme {name} has no servers")
    exchanges = algorithm.averager.exchanges > 0 or algorithm.network.clients == 1
    for way, codec in algorithm.codecs.items():
        if not codec.exact and not (way == "between" and exchanges):
            raise InputError(f"codecs.{way}", codec, f"nothing goes this way in scheme {name}")
    if not exchanges:
        if correction is not None:
            raise InputError("correction", correction, f"in scheme {name} nobody meets others")
        return
    why = f"in scheme {name} clients wait for each other, and no server goes on without one"
    if algorithm.participation.beta < 1:
        raise InputError("participation", algorithm.participation.beta, f"1: {why}")
    if algorithm.uplink.presence is not None:
        raise InputError("profile", "availability", f"devices that are always there: {why}")
    if algorithm.pace != Synchronous():
        raise InputError("pace", algorithm.pace, f"synchronous: {why}")
