"""What goes with a graph that changes over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sdfeel.algorithm.pace import TurnPace
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.correction import Correction

__all__ = ["check_changing"]


def check_changing(algorithm: Algorithm, correction: Correction | None) -> None:
    """Refuse by name what is made for one graph; build every averager of those that are known."""
    if isinstance(algorithm.pace, TurnPace):
        pace = type(algorithm.pace).__name__
        raise InputError("pace", pace, "has no rounds in which a graph could change: synchronous")
    if correction is not None and correction.servers:
        raise InputError(
            "correction",
            correction.name,
            "its gamma is chosen for one mixing of the servers, and the graph changes; `clients` "
            "needs none",
        )
    between = algorithm.codecs["between"]
    if not between.exact:
        raise InputError(
            "codecs.between",
            between,
            "sends the change since the last exchange, and a new neighbour has not heard the last",
        )
    first = 0
    for number, (_, rounds) in enumerate(algorithm.network.turns or ()):
        try:
            algorithm.mixing_on(algorithm.network.at(first))
        except InputError as mistake:
            where = f"graphs[{number}]: {mistake.field}"
            raise InputError(where, mistake.value, mistake.remedy) from None
        first += rounds
