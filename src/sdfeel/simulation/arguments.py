"""The settings of a run as keyword arguments: what an editor and a type checker know of them.

One field for each field of `Settings`, with what users may give; a test holds the two equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

import torch

from sdfeel.algorithm.methods.attacks import Attacks
from sdfeel.algorithm.methods.averaging import AveragingRule
from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.optimizers import Optimizer
from sdfeel.algorithm.methods.rates import Rate
from sdfeel.algorithm.methods.server_optimizers import ServerOptimizer
from sdfeel.algorithm.paces import Pace
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import Scheme
from sdfeel.clock import LatencyProfile
from sdfeel.network import Averager, Builder

Table = Mapping[str, Any]  # a name and settings, as a file has them


class RunSettings(TypedDict, total=False):
    """All settings of a run as keyword arguments; `help(sdfeel.train)` says what each is."""

    steps: int
    until: float
    scheme: str | Scheme
    schedule: Schedule | Table
    participation: float
    averager: str | Averager | Builder | Sequence[Sequence[float]]
    averaging_rule: str | AveragingRule | Callable[[Any, Any, Any], Any] | Table | None
    server_optimizer: str | ServerOptimizer | Table | None
    optimizer: str | Optimizer | Table
    lr: float | Rate | Callable[[int], float] | Table
    codecs: Mapping[str, str | Codec | Table]
    pace: str | Pace | Table
    correction: str | Method | Table | None
    methods: Sequence[Method]
    attacks: Attacks | Table | None
    batch_size: int
    seed: int
    profile: str | Path | LatencyProfile | Table
    flower: Any
    run_config: Table
    train_config: Table
    node_config: Mapping[str, Any] | Sequence[Table]
    processes: int | None
    engine: str
    device: str | torch.device
    evaluate_every: int | None
    train_samples: int | None
    evaluate_servers: bool
    checkpoint_seconds: float
