"""What all parts of one edge server share, handed down as one thing."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.facts.stream import Recent, Tell
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.waiting import Background, Signal

__all__ = ["Node"]


@dataclass(frozen=True)
class Node:
    """An edge server as its parts see it.

    folder  for its checkpoints, and for models that are too large for the memory
    size    values of a model
    tell    passes on what has happened: see `facts`
    signal  notified by whatever changes something that another part may wait for
    background  what goes on beside the periods
    life    the number of this life; transactions count up from it, so none comes twice
    recent  the newest facts
    chance  draws the pauses between attempts: seeded in tests, else by the operating system
    """

    name: str
    topology: Topology
    credentials: Credentials
    folder: Path
    size: int
    tell: Tell
    metrics: Metrics
    signal: Signal
    background: Background
    life: int = field(default_factory=lambda: secrets.randbits(62))
    recent: Recent = field(default_factory=Recent)
    chance: random.Random | None = None

    @property
    def deployment(self) -> Deployment:
        return self.topology.deployment
