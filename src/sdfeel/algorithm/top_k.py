"""The k largest values by size, with their places; the others are owed the next time."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from sdfeel.algorithm.codec import Codec, Draw, Message, peak, refuse_beyond
from sdfeel.algorithm.local import Rows
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TopK"]


@dataclass(frozen=True)
class TopK(Codec):
    """k values a message as float32, with error feedback. k: None for a hundredth of all values."""

    k: int | None = None

    keeps: ClassVar[tuple[str, ...]] = ("residual",)
    leaves_out: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole = isinstance(self.k, numbers.Integral) and not isinstance(self.k, bool)
        if self.k is not None and not (whole and self.k >= 1):
            raise InputError("codecs.k", self.k, "a whole number of values, at least 1")

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        import torch

        owed = values + kept["residual"] if "residual" in kept else values
        refuse_beyond("top-k", peak(owed), float("inf"))
        places = owed.abs().topk(self.count(values.shape[1]), dim=1, sorted=False).indices
        places = places.sort(dim=1).values
        width = _width(values.shape[1])
        shifts = np.arange(width)
        spread = (places.cpu().numpy()[..., None] >> shifts & 1).astype(np.uint8)
        packed = np.packbits(spread.reshape(len(values), -1), axis=1)
        message = {"values": owed.gather(1, places).float(), "places": torch.from_numpy(packed)}
        return self.feed_back(owed, message, kept)

    def decode(self, message: Message, like: Tensor) -> Tensor:
        import torch

        count, width = message["values"].shape[1], _width(like.shape[1])
        spread = np.unpackbits(message["places"].numpy(), axis=1, count=count * width)
        spread = spread.reshape(len(like), count, width).astype(np.int64)
        places = torch.from_numpy((spread << np.arange(width)).sum(axis=2)).to(like.device)
        return torch.zeros_like(like).scatter_(1, places, message["values"].to(like.dtype))

    def count(self, values: int) -> int:
        """k, for messages of so many values."""
        if self.k is None:
            return max(1, values // 100)
        if self.k > values:
            raise InputError("codecs.k", self.k, f"at most {values}: a model has no more values")
        return self.k

    def bits(self, values: int) -> int:
        return self.count(values) * (32 + _width(values))


def _width(values: int) -> int:
    """Bits of a place: ceil(log2 n)."""
    return (values - 1).bit_length()
