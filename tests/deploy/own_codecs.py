"""Codecs as a user may write them in a file of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfeel.algorithm.methods.codecs import Codec
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


class Broken(Sign):
    """Cannot read what it has written."""

    def decode(self, message: Any, like: Any) -> Any:
        raise ZeroDivisionError
