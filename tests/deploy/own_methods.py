"""Methods as a user may write them in a file of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfeel.algorithm.methods.averaging import AveragingRule
from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.method import Row
from sdfeel.validation import checked


@checked("codecs")
class Sign(Codec):
    """The user's: signs, and the mean size of a chunk times `scale`."""

    scale: float = 1.0

    def encode(self, values: Any, draw: Any) -> Any:
        sizes = self.scale * np.abs(values).mean(axis=1, keepdims=True)
        return {"sizes": sizes.astype("<f4"), "signs": np.sign(values).astype("i1")}

    def decode(self, message: Any, like: Any) -> Any:
        return (message["sizes"] * message["signs"]).astype(like.dtype)

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        return {"sizes": ("<f4", 1), "signs": ("i1", values)}

    def bits(self, values: int) -> int:
        return 32 + 8 * values


class Wordless(Codec):
    """Does not say how it lies on the wire."""

    def encode(self, values: Any, draw: Any) -> Any:
        return {"values": values}

    def decode(self, message: Any, like: Any) -> Any:
        return message["values"]

    def bits(self, values: int) -> int:
        return 32 * values


class Broken(Sign):
    """Cannot read what it has written."""

    def decode(self, message: Any, like: Any) -> Any:
        raise ZeroDivisionError


@checked("averaging_rule")
class Slowed(AveragingRule):
    """The mean, and a part `beta` of how far the last one went."""

    beta: float = 0.5

    @property
    def rows(self) -> Any:
        return {"move": Row("servers"), "count": Row("servers", width=1)}

    def combine(self, models: Any, shares: Any, held: Any, rows: Any, period: Any) -> Any:
        rows["move"][:] = self.beta * rows["move"] + (shares @ models - held)
        rows["count"][:] += len(period.clients)
        return held + rows["move"]


def halfway(models: Any, shares: Any, held: Any) -> Any:
    """Half of the way to the mean."""
    return (shares @ models + held) / 2


def short(models: Any, shares: Any, held: Any) -> Any:
    """A mistake: no model."""
    return held[:-1]


class Careful(Correction):
    """Clients believe half of what they learn."""

    def learn(self, moved: Any, move: Any, rows: Any, period: Any) -> None:
        super().learn(moved / 2, move / 2, rows, period)


class Forgetful(Correction):
    """Remembers what no message carries."""

    @property
    def rows(self) -> Any:
        return {**super().rows, "more": Row("clients")}
