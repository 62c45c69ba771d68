"""Semi-decentralized federated edge learning: simulate it, plan it, run it.

>>> import sdfeel
>>> sdfeel.Network.ring(servers=10, clients_per_server=5)
Network(50 clients, 10 servers, 10 links)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sdfeel.algorithm.methods.averaging import AveragingRule
    from sdfeel.algorithm.methods.codecs import CODECS, Codec
    from sdfeel.algorithm.methods.corrections import CORRECTIONS, Correction
    from sdfeel.algorithm.methods.method import Affine, Method, Row
    from sdfeel.algorithm.methods.optimizers import (
        OPTIMIZERS,
        SGD,
        Adam,
        AdamW,
        Momentum,
        Optimizer,
    )
    from sdfeel.algorithm.methods.rates import RATES, Constant, Cosine, Inverse, Rate, Step
    from sdfeel.algorithm.methods.server_optimizers import (
        SERVER_OPTIMIZERS,
        FedAdagrad,
        FedAdam,
        FedAvgM,
        FedYogi,
        ServerOptimizer,
    )
    from sdfeel.algorithm.paces import Asynchronous, Deadline, FedAsync, FedBuff, Pace, Synchronous
    from sdfeel.algorithm.schedule import Schedule
    from sdfeel.algorithm.schemes import SCHEMES, Scheme
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
    "OPTIMIZERS",
    "RATES",
    "SCHEMES",
    "SERVER_OPTIMIZERS",
    "SGD",
    "Adam",
    "AdamW",
    "Affine",
    "Asynchronous",
    "Averager",
    "AveragingRule",
    "ClientData",
    "Codec",
    "Comparison",
    "Constant",
    "Correction",
    "Cosine",
    "Deadline",
    "FedAdagrad",
    "FedAdam",
    "FedAsync",
    "FedAvgM",
    "FedBuff",
    "FedYogi",
    "InputError",
    "Inverse",
    "LatencyProfile",
    "Method",
    "Momentum",
    "Network",
    "Optimizer",
    "Pace",
    "Plan",
    "Rate",
    "Result",
    "Row",
    "RunError",
    "Schedule",
    "Scheme",
    "SdfeelError",
    "ServerOptimizer",
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
    "CODECS": "sdfeel.algorithm.methods.codecs",
    "CORRECTIONS": "sdfeel.algorithm.methods.corrections",
    "GRAPHS": "sdfeel.network",
    "OPTIMIZERS": "sdfeel.algorithm.methods.optimizers",
    "RATES": "sdfeel.algorithm.methods.rates",
    "SCHEMES": "sdfeel.algorithm.schemes",
    "SERVER_OPTIMIZERS": "sdfeel.algorithm.methods.server_optimizers",
    "SGD": "sdfeel.algorithm.methods.optimizers",
    "Adam": "sdfeel.algorithm.methods.optimizers",
    "AdamW": "sdfeel.algorithm.methods.optimizers",
    "Affine": "sdfeel.algorithm.methods.method",
    "Asynchronous": "sdfeel.algorithm.paces",
    "Averager": "sdfeel.network",
    "AveragingRule": "sdfeel.algorithm.methods.averaging",
    "ClientData": "sdfeel.data",
    "Codec": "sdfeel.algorithm.methods.codecs",
    "Comparison": "sdfeel.experiments.comparison",
    "Constant": "sdfeel.algorithm.methods.rates",
    "Correction": "sdfeel.algorithm.methods.corrections",
    "Cosine": "sdfeel.algorithm.methods.rates",
    "Deadline": "sdfeel.algorithm.paces",
    "FedAdagrad": "sdfeel.algorithm.methods.server_optimizers",
    "FedAdam": "sdfeel.algorithm.methods.server_optimizers",
    "FedAsync": "sdfeel.algorithm.paces",
    "FedAvgM": "sdfeel.algorithm.methods.server_optimizers",
    "FedBuff": "sdfeel.algorithm.paces",
    "FedYogi": "sdfeel.algorithm.methods.server_optimizers",
    "InputError": "sdfeel.errors",
    "Inverse": "sdfeel.algorithm.methods.rates",
    "LatencyProfile": "sdfeel.clock",
    "Method": "sdfeel.algorithm.methods.method",
    "Momentum": "sdfeel.algorithm.methods.optimizers",
    "Network": "sdfeel.network",
    "Optimizer": "sdfeel.algorithm.methods.optimizers",
    "Pace": "sdfeel.algorithm.paces",
    "Plan": "sdfeel.planner.plan",
    "Rate": "sdfeel.algorithm.methods.rates",
    "Result": "sdfeel.api",
    "Row": "sdfeel.algorithm.methods.method",
    "RunError": "sdfeel.errors",
    "Schedule": "sdfeel.algorithm.schedule",
    "Scheme": "sdfeel.algorithm.schemes",
    "SdfeelError": "sdfeel.errors",
    "ServerOptimizer": "sdfeel.algorithm.methods.server_optimizers",
    "Step": "sdfeel.algorithm.methods.rates",
    "Synchronous": "sdfeel.algorithm.paces",
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
    if name in ("callbacks", "data"):
        return importlib.import_module(f"sdfeel.{name}")
    raise AttributeError(f"module 'sdfeel' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
