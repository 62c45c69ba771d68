"""What a timeline is made of: boxes in lanes, each with its seconds by what they went into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["MOST", "PARTS", "Box", "parts_of", "shares"]

# In the order in which they follow each other.
PARTS = ("compute", "upload", "waiting", "exchange", "download")
MOST = 1500  # boxes of a picture


@dataclass(frozen=True)
class Box:
    """One period of one lane, by iterations; its parts follow each other from `start` on."""

    lane: int
    first: int
    last: int
    start: float
    parts: dict[str, float]

    @property
    def end(self) -> float:
        return self.start + sum(self.parts.values())

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parts_of(spans: Mapping[str, float]) -> dict[str, float]:
    """Seconds by part, of seconds by name of `sdfeel.algorithm.events.SPANS`."""
    waiting = {"waiting": spans["slack"] + spans["wait"]}
    return {name: waiting.get(name, spans.get(name, 0.0)) for name in PARTS}


def shares(boxes: Sequence[Box], count: float) -> dict[str, float]:
    """Seconds by part, summed over boxes and divided by `count`."""
    return {name: sum(box.parts[name] for box in boxes) / count for name in PARTS}
