"""The paces by name."""

from __future__ import annotations

from sdfeel.algorithm.asynchronous import Asynchronous
from sdfeel.algorithm.pace import Deadline, Pace, Synchronous
from sdfeel.algorithm.star import FedAsync, FedBuff
from sdfeel.algorithm.tables import by_name
from sdfeel.errors import InputError

__all__ = ["PACES", "pace_of"]

PACES: dict[str, type[Pace]] = {
    "synchronous": Synchronous,
    "deadline": Deadline,
    "asynchronous": Asynchronous,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
}


def pace_of(pace: str | Pace) -> Pace:
    """A pace by its name, or as an object such as `sdfeel.Deadline(seconds=1.0)`."""
    if pace == "deadline":
        raise InputError("pace", pace, "needs its length: pace.seconds, or sdfeel.Deadline(1.0)")
    return by_name("pace", pace, PACES, Pace)
