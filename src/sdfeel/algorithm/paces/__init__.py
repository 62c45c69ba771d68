"""Paces by name: who waits for whom. To add one, add a row."""

from __future__ import annotations

from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.algorithm.paces.pace import Pace
from sdfeel.algorithm.paces.star import FedAsync, FedBuff
from sdfeel.algorithm.paces.synchronous import Deadline, Synchronous

__all__ = ["PACES", "Asynchronous", "Deadline", "FedAsync", "FedBuff", "Pace", "Synchronous"]

PACES: dict[str, type[Pace]] = {
    "synchronous": Synchronous,
    "deadline": Deadline,
    "asynchronous": Asynchronous,
    "fedasync": FedAsync,
    "fedbuff": FedBuff,
}
