"""A codec: from values to a message and back. And those that only round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.randomness import MESSAGE, seeds
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["BFloat16", "Codec", "Draw", "Float16", "Float32", "Message", "peak", "refuse_beyond"]

Message = dict[str, "Tensor"]


@dataclass(frozen=True)
class Draw:
    """By what a codec draws its random numbers: the same whatever the engine or the machine.

    senders  numbers of clients (up) or of servers (down, between)
    k        an iteration: of all senders, or of each
    stream   tells the ways apart, and the exchanges of one aggregation
    """

    seed: int
    senders: NDArray[np.int64]
    k: int | NDArray[np.int64]
    stream: int = 0

    def uniforms(self, count: int) -> Tensor:
        """Numbers in (0, 1), (senders x count), a function of (seed, sender, k).

        They are the middles of 65,536 equal parts: four of them come out of one draw of 64 bits.
        """
        import torch

        words = torch.empty(len(self.senders), -(-count // 4), dtype=torch.int64)
        generator = torch.Generator()
        for row, number in zip(words, self.numbers, strict=True):
            generator.manual_seed(int(number))
            row.random_(-(2**63), None, generator=generator)
        parts = words.view(torch.int16)[:, :count]
        return parts.float().add_(32768.5).mul_(2.0**-16)

    @cached_property
    def numbers(self) -> NDArray[np.uint64]:
        """A seed of 64 bits for each sender."""
        found = np.empty(len(self.senders), dtype=np.uint64)
        ks = np.broadcast_to(self.k, found.shape)
        for k in np.unique(ks):
            own = ks == k
            found[own] = seeds(self.seed, self.senders[own], np.array([k]), MESSAGE + self.stream)[
                :, 0
            ]
        return found

    def of(self, part: slice) -> Draw:
        """For some of the senders."""
        k = self.k if isinstance(self.k, int) else self.k[part]
        found = Draw(self.seed, self.senders[part], k, self.stream)
        vars(found)["numbers"] = self.numbers[part]
        return found


class Codec(ABC):
    """From values to a message and back; rows of several senders go through together."""

    keeps: ClassVar[tuple[str, ...]] = ()  # names of the rows that a sender remembers
    exact: ClassVar[bool] = False  # whether what arrives is what was sent
    leaves_out: ClassVar[bool] = False  # whether some values are not sent at all, until later

    @abstractmethod
    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:
        """The message of each sender: values is (senders, n), and so are the rows of `kept`."""

    @abstractmethod
    def decode(self, message: Message, like: Tensor) -> Tensor:
        """What the receiver makes of it, in the dtype and shape of `like`."""

    @abstractmethod
    def bits(self, values: int) -> int:
        """Length of a message of so many values."""

    @final
    def feed_back(self, owed: Tensor, message: Message, kept: Rows) -> Message:
        """Error feedback: what was owed and does not arrive is owed the next time."""
        if "residual" in kept:
            kept["residual"].copy_(owed - self.decode(message, owed))
        return message


def peak(values: Tensor) -> float:
    """The largest absolute value; not a number where one is not."""
    return float(values.abs().max()) if values.numel() else 0.0


def refuse_beyond(codec: str, value: float, most: float) -> None:
    """A value that is not finite, or too large, has no place in a message."""
    if not value < most:
        raise InputError(
            "codecs", codec, "cannot send a change that is not finite: a smaller lr, or float32"
        )


@dataclass(frozen=True)
class Float32(Codec):
    """As it is."""

    exact: ClassVar[bool] = True

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        return {"values": values}

    def decode(self, message: Message, like: Tensor) -> Tensor:  # noqa: ARG002
        return message["values"]

    def bits(self, values: int) -> int:
        return 32 * values


@dataclass(frozen=True)
class Float16(Codec):
    """Rounded to nearest, 11 bits of precision; beyond 65,504 there is nothing to round to."""

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        if not peak(values) < 65520:  # from there on it would be rounded up to infinity
            raise InputError(
                "codecs", "float16", "a change larger than 65,504 cannot be sent: a smaller lr, or "
                "bfloat16"
            )  # fmt: skip
        return {"values": values.half()}

    def decode(self, message: Message, like: Tensor) -> Tensor:
        return message["values"].to(like.dtype)

    def bits(self, values: int) -> int:
        return 16 * values


@dataclass(frozen=True)
class BFloat16(Codec):
    """Rounded to nearest, 8 bits of precision and the range of float32."""

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        refuse_beyond("bfloat16", peak(values), 3.39e38)
        return {"values": values.bfloat16()}

    def decode(self, message: Message, like: Tensor) -> Tensor:
        return message["values"].to(like.dtype)

    def bits(self, values: int) -> int:
        return 16 * values
