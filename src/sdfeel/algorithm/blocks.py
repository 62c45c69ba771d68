"""Whole numbers of few bits in blocks of 256 values, each with one float32 scale.

With a the largest absolute value of a block and s = a / q, q = 127 or 7, a value v is sent as

    int8   floor(v / s + u), u uniform in [0, 1): unbiased, so nothing has to be remembered
    int4   v / s rounded to nearest, and v - s round(v / s) is owed the next time

int4 rounds to nearest because then what is kept is exact: where anything is sent of v it is within
a factor of 2 of v, and a difference of such two numbers is a float32 (Sterbenz). So sent + kept =
owed, to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdfeel.algorithm.codec import Codec, Draw, Message, peak, refuse_beyond
from sdfeel.algorithm.local import Rows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BLOCK", "Int4", "Int8"]

BLOCK = 256


def _blocks(values: Tensor, most: int, name: str) -> tuple[Tensor, Tensor]:
    """Values over their block's scale, (senders x blocks x 256), and the scales."""
    import torch

    padded = torch.nn.functional.pad(values, (0, -values.shape[1] % BLOCK))
    blocks = padded.view(len(values), -1, BLOCK)
    scales = (blocks.abs().amax(dim=-1) / most).float()
    refuse_beyond(name, peak(scales), float("inf"))
    divisors = torch.where(scales > 0, scales, torch.ones_like(scales))
    return blocks / divisors.to(values.dtype)[..., None], scales


def _times(numbers: Tensor, scales: Tensor, like: Tensor) -> Tensor:
    """Whole numbers (senders x blocks x 256) times their scales, as values like `like`."""
    values = numbers.to(like.dtype) * scales.to(like.dtype)[..., None]
    return values.view(len(like), -1)[:, : like.shape[1]]


@dataclass(frozen=True)
class Int8(Codec):
    """8 bits a value, rounded at random: unbiased, and off by less than one step of its block."""

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        scaled, scales = _blocks(values, 127, "int8")
        dice = draw.uniforms(scaled[0].numel()).view(scaled.shape).to(scaled)
        numbers = scaled.add_(dice).floor_().clamp_(-127, 127).char()
        return {"numbers": numbers.view(len(values), -1)[:, : values.shape[1]], "scales": scales}

    def decode(self, message: Message, like: Tensor) -> Tensor:
        import torch

        padded = torch.nn.functional.pad(message["numbers"], (0, -like.shape[1] % BLOCK))
        return _times(padded.view(len(like), -1, BLOCK), message["scales"], like)

    def bits(self, values: int) -> int:
        return 8 * values + 32 * -(-values // BLOCK)


@dataclass(frozen=True)
class Int4(Codec):
    """4 bits a value, rounded to nearest, with error feedback; two values a byte."""

    keeps: ClassVar[tuple[str, ...]] = ("residual",)

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        import torch

        owed = values + kept["residual"] if "residual" in kept else values
        scaled, scales = _blocks(owed, 7, "int4")
        numbers = scaled.round_().clamp_(-7, 7).add_(8).byte().view(len(values), -1)
        pairs = numbers.view(torch.int16)[:, : -(-values.shape[1] // 2)]
        packed = ((pairs & 15) | ((pairs >> 4) & 240)).byte()
        return self.feed_back(owed, {"numbers": packed, "scales": scales}, kept)

    def decode(self, message: Message, like: Tensor) -> Tensor:
        import torch

        pairs = message["numbers"].short()
        numbers = ((pairs & 15) | ((pairs & 240) << 4)).view(torch.int8) - 8
        padded = torch.nn.functional.pad(numbers, (0, -numbers.shape[1] % BLOCK))
        return _times(padded.view(len(like), -1, BLOCK), message["scales"], like)

    def bits(self, values: int) -> int:
        return 4 * values + 32 * -(-values // BLOCK)
