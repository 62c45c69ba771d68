"""Codecs: what travels when a model is sent, as a difference to what the receiver holds already.

    float32   as it is                  32 n bits for n values
    float16   rounded to nearest        16 n bits

The clock and the wire ask the same `bits`. A codec of one's own is a subclass of `Codec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sdfeel.algorithm.local import Rows
from sdfeel.errors import InputError, closest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["CODECS", "WAYS", "Codec", "Draw", "Float16", "Float32", "codec_of", "codecs_of"]

# The ways of a model: from a client up to its server.
WAYS = ("up",)

Message = dict[str, "Tensor"]


@dataclass(frozen=True)
class Draw:
    """By what a codec draws its random numbers: the same whatever the engine or the machine."""

    seed: int
    senders: NDArray[np.int64]
    k: int


class Codec(ABC):
    """From values to a message and back; rows of several senders go through together."""

    keeps: ClassVar[tuple[str, ...]] = ()  # names of the rows that a sender remembers
    exact: ClassVar[bool] = False  # whether what arrives is what was sent

    @abstractmethod
    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:
        """The message of each sender: values is (senders, n)."""

    @abstractmethod
    def decode(self, message: Message, like: Tensor) -> Tensor:
        """What the receiver makes of it, in the dtype and shape of `like`."""

    @abstractmethod
    def bits(self, values: int) -> int:
        """Length of a message of so many values."""


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
    """Rounded to nearest; beyond 65,504 there is nothing to round to."""

    def encode(self, values: Tensor, kept: Rows, draw: Draw) -> Message:  # noqa: ARG002
        rounded = values.half()
        if not bool(rounded.isfinite().all()):
            raise InputError(
                "codecs", "float16", "a change larger than 65,504 cannot be sent: a smaller lr, or "
                "float32"
            )  # fmt: skip
        return {"values": rounded}

    def decode(self, message: Message, like: Tensor) -> Tensor:
        return message["values"].to(like.dtype)

    def bits(self, values: int) -> int:
        return 16 * values


CODECS: dict[str, type[Codec]] = {"float32": Float32, "float16": Float16}


def codec_of(way: str, codec: str | Codec) -> Codec:
    """A codec by its name, or the user's own."""
    if isinstance(codec, Codec):
        return codec
    if codec not in CODECS:
        raise InputError(f"codecs.{way}", codec, closest(str(codec), CODECS))
    return CODECS[codec]()


def codecs_of(given: Mapping[str, str | Codec] | None) -> dict[str, Codec]:
    """The codec of every way; what is not named goes as it is."""
    given = given or {}
    if not isinstance(given, Mapping):
        raise InputError("codecs", given, 'a codec by way, such as {"up": "float16"}')
    for way in given:
        if way not in WAYS:
            raise InputError("codecs", way, f"a way that models take; {closest(way, WAYS)}")
    return {way: codec_of(way, given.get(way, "float32")) for way in WAYS}
