"""Semi-decentralized federated edge learning: simulate it, plan it, run it.

>>> import sdfeel
>>> sdfeel.Network.ring(servers=10, clients_per_server=5)
Network(50 clients, 10 servers, 10 links)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdfeel.algorithm.asynchronous import Asynchronous
    from sdfeel.algorithm.codecs import CODECS, Codec
    from sdfeel.algorithm.correction import CORRECTIONS, Correction
    from sdfeel.algorithm.local import LOCAL_RULES, SGD, Adam, AdamW, Affine, LocalRule, Momentum
    from sdfeel.algorithm.pace import Deadline, Synchronous
    from sdfeel.algorithm.rates import RATES, Constant, Cosine, Inverse, Rate, Step
    from sdfeel.algorithm.schedule import Schedule
    from sdfeel.algorithm.schemes import SCHEMES, Scheme
    from sdfeel.algorithm.server_rule import (
        SERVER_RULES,
        FedAdagrad,
        FedAdam,
        FedAvgM,
        FedYogi,
        ServerRule,
    )
    from sdfeel.algorithm.trainer import Trainer
    from sdfeel.api import Result, train
    from sdfeel.clock import LatencyProfile, load_profile
    from sdfeel.data import ClientData
    from sdfeel.errors import InputError, RunError, SdfeelError
    from sdfeel.experiments.comparison import Comparison, compare, load
    from sdfeel.network import AVERAGERS, GRAPHS, Averager, Network
    from sdfeel.planner.plan import Plan, plan

__version__ = "0.1.0"

__all__ = [
    "AVERAGERS",
    "CODECS",
    "CORRECTIONS",
    "GRAPHS",
    "LOCAL_RULES",
    "RATES",
    "SCHEMES",
    "SERVER_RULES",
    "SGD",
    "Adam",
    "AdamW",
    "Affine",
    "Asynchronous",
    "Averager",
    "ClientData",
    "Codec",
    "Comparison",
    "Constant",
    "Correction",
    "Cosine",
    "Deadline",
    "FedAdagrad",
    "FedAdam",
    "FedAvgM",
    "FedYogi",
    "InputError",
    "Inverse",
    "LatencyProfile",
    "LocalRule",
    "Momentum",
    "Network",
    "Plan",
    "Rate",
    "Result",
    "RunError",
    "Schedule",
    "Scheme",
    "SdfeelError",
    "ServerRule",
    "Step",
    "Synchronous",
    "Trainer",
    "compare",
    "load",
    "load_profile",
    "plan",
    "train",
]

# Where each public name lives. They are imported when first used: torch takes seconds to import,
# and `sdfeel --help` should not wait for it.
_HOMES = {
    "AVERAGERS": "sdfeel.network",
    "CODECS": "sdfeel.algorithm.codecs",
    "CORRECTIONS": "sdfeel.algorithm.correction",
    "GRAPHS": "sdfeel.network",
    "LOCAL_RULES": "sdfeel.algorithm.local",
    "RATES": "sdfeel.algorithm.rates",
    "SCHEMES": "sdfeel.algorithm.schemes",
    "SERVER_RULES": "sdfeel.algorithm.server_rule",
    "SGD": "sdfeel.algorithm.local",
    "Adam": "sdfeel.algorithm.local",
    "AdamW": "sdfeel.algorithm.local",
    "Affine": "sdfeel.algorithm.local",
    "Asynchronous": "sdfeel.algorithm.asynchronous",
    "Averager": "sdfeel.network",
    "ClientData": "sdfeel.data",
    "Codec": "sdfeel.algorithm.codecs",
    "Comparison": "sdfeel.experiments.comparison",
    "Constant": "sdfeel.algorithm.rates",
    "Correction": "sdfeel.algorithm.correction",
    "Cosine": "sdfeel.algorithm.rates",
    "Deadline": "sdfeel.algorithm.pace",
    "FedAdagrad": "sdfeel.algorithm.server_rule",
    "FedAdam": "sdfeel.algorithm.server_rule",
    "FedAvgM": "sdfeel.algorithm.server_rule",
    "FedYogi": "sdfeel.algorithm.server_rule",
    "InputError": "sdfeel.errors",
    "Inverse": "sdfeel.algorithm.rates",
    "LatencyProfile": "sdfeel.clock",
    "LocalRule": "sdfeel.algorithm.local",
    "Momentum": "sdfeel.algorithm.local",
    "Network": "sdfeel.network",
    "Plan": "sdfeel.planner.plan",
    "Rate": "sdfeel.algorithm.rates",
    "Result": "sdfeel.api",
    "RunError": "sdfeel.errors",
    "Schedule": "sdfeel.algorithm.schedule",
    "Scheme": "sdfeel.algorithm.schemes",
    "SdfeelError": "sdfeel.errors",
    "ServerRule": "sdfeel.algorithm.server_rule",
    "Step": "sdfeel.algorithm.rates",
    "Synchronous": "sdfeel.algorithm.pace",
    "Trainer": "sdfeel.algorithm.trainer",
    "compare": "sdfeel.experiments.comparison",
    "load": "sdfeel.experiments.comparison",
    "load_profile": "sdfeel.clock",
    "plan": "sdfeel.planner.plan",
    "train": "sdfeel.api",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name == "callbacks":
        return importlib.import_module("sdfeel.callbacks")
    raise AttributeError(f"module 'sdfeel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
