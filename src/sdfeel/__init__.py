"""Semi-decentralized federated edge learning: simulate it, plan it, run it.

>>> import sdfeel
>>> sdfeel.Network.ring(servers=10, clients_per_server=5)
Network(50 clients, 10 servers, 10 links)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdfeel.algorithm.codecs import CODECS, Codec
    from sdfeel.algorithm.local import LOCAL_RULES, SGD, Affine, LocalRule, Momentum
    from sdfeel.algorithm.pace import Deadline, Synchronous
    from sdfeel.algorithm.schedule import Schedule
    from sdfeel.algorithm.schemes import SCHEMES, Scheme
    from sdfeel.algorithm.trainer import Trainer
    from sdfeel.api import Result, train
    from sdfeel.clock import LatencyProfile, load_profile
    from sdfeel.data import ClientData
    from sdfeel.errors import InputError, RunError, SdfeelError
    from sdfeel.network import AVERAGERS, GRAPHS, Averager, Network

__version__ = "0.1.0"

__all__ = [
    "AVERAGERS",
    "CODECS",
    "GRAPHS",
    "LOCAL_RULES",
    "SCHEMES",
    "SGD",
    "Affine",
    "Averager",
    "ClientData",
    "Codec",
    "Deadline",
    "InputError",
    "LatencyProfile",
    "LocalRule",
    "Momentum",
    "Network",
    "Result",
    "RunError",
    "Schedule",
    "Scheme",
    "SdfeelError",
    "Synchronous",
    "Trainer",
    "load_profile",
    "train",
]

# Where each public name lives. They are imported when first used: torch takes seconds to import,
# and `sdfeel --help` should not wait for it.
_HOMES = {
    "AVERAGERS": "sdfeel.network",
    "CODECS": "sdfeel.algorithm.codecs",
    "GRAPHS": "sdfeel.network",
    "LOCAL_RULES": "sdfeel.algorithm.local",
    "SCHEMES": "sdfeel.algorithm.schemes",
    "SGD": "sdfeel.algorithm.local",
    "Affine": "sdfeel.algorithm.local",
    "Averager": "sdfeel.network",
    "ClientData": "sdfeel.data",
    "Codec": "sdfeel.algorithm.codecs",
    "Deadline": "sdfeel.algorithm.pace",
    "InputError": "sdfeel.errors",
    "LatencyProfile": "sdfeel.clock",
    "LocalRule": "sdfeel.algorithm.local",
    "Momentum": "sdfeel.algorithm.local",
    "Network": "sdfeel.network",
    "Result": "sdfeel.api",
    "RunError": "sdfeel.errors",
    "Schedule": "sdfeel.algorithm.schedule",
    "Scheme": "sdfeel.algorithm.schemes",
    "SdfeelError": "sdfeel.errors",
    "Synchronous": "sdfeel.algorithm.pace",
    "Trainer": "sdfeel.algorithm.trainer",
    "load_profile": "sdfeel.clock",
    "train": "sdfeel.api",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'sdfeel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
