"""Codecs: what travels when a model is sent, as a difference to what the receiver holds already.

    codec      value                                                       bits for n values
    float32    as it is                                                    32 n
    float16    rounded to nearest                                          16 n
    bfloat16   rounded to nearest                                          16 n
    int8       blocks of 256 with a float32 scale, rounded at random       8 n + 32 ceil(n/256)
    int4       the same with 4 bits, to nearest, with error feedback       4 n + 32 ceil(n/256)
    top-k      the k largest with their places, with error feedback        k (32 + ceil(log2 n))

Models take three ways, each with a codec of its own:

    up        w_i - w_d(0), from a client to its server
    down      the change of the server's model since the client's last; who missed one gets all
    between   the change of a server's model since its neighbours last heard of it

Error feedback: what a message leaves out is kept and added to the next one. On the way up it is a
row that each client keeps. On the other two it needs none: the difference to what the receivers
hold has in it all that did not arrive before.

With a the largest absolute value of a block and s = a / q, q = 127 or 7, a value v is sent as

    int8   floor(v / s + u), u uniform in [0, 1): unbiased, so nothing has to be remembered
    int4   v / s rounded to nearest, and v - s round(v / s) is added to the next message

int4 rounds to nearest because then what is kept is exact: where anything is sent of v it is within
a factor of 2 of v, and a difference of such two numbers is a float32 (Sterbenz). So sent + kept =
what was to be sent, to the last bit.

A message is arrays by name, laid end to end on the wire. The clock asks `bits`, and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.randomness import MESSAGE, seeds
from sdfeel.errors import InputError
from sdfeel.tables import to_table
from sdfeel.validation import Count, checked

Floats = NDArray[np.floating[Any]]
Message = dict[str, NDArray[Any]]

WAYS = ("up", "down", "between")
BLOCK = 256  # values that share a scale


class Draw:
    """Random numbers for messages, a stream for each sender: a function of (seed, sender, k).

    PyTorch's generator and the one that numpy has had from the beginning are the same, Mersenne
    Twister with a seed of 32 bits; PyTorch makes 64 bits of two numbers, the upper half first.

    Args:
        seed: of the run.
        senders: numbers of clients (up) or of servers (down, between).
        k: the iteration, of all senders or of each.
        stream: tells the ways apart, and the exchanges of one aggregation.
    """

    def __init__(
        self, seed: int, senders: NDArray[np.int64], k: int | NDArray[np.int64], stream: int = 0
    ) -> None:
        self._numbers = np.empty(len(senders), dtype=np.uint64)
        ks = np.broadcast_to(k, self._numbers.shape)
        for each in np.unique(ks):
            at_this_step = ks == each
            drawn = seeds(seed, senders[at_this_step], np.array([each]), MESSAGE + stream)
            self._numbers[at_this_step] = drawn[:, 0]
        self._twisters: list[np.random.RandomState] = []

    def uniforms(self, count: int) -> NDArray[np.float32]:
        """The next numbers in (0, 1), (senders, count).

        They are the middles of 65,536 equal parts: four of them come out of one draw of 64 bits.
        Only the last call may ask for a count that is no multiple of 4.
        """
        if not self._twisters:
            self._twisters = [np.random.RandomState(int(n) & 0xFFFFFFFF) for n in self._numbers]
        words = b"".join(twister.bytes(8 * -(-count // 4)) for twister in self._twisters)
        halves = np.frombuffer(words, dtype="<u4").reshape(len(self._twisters), -1, 2)[..., ::-1]
        parts = np.ascontiguousarray(halves).view("<i2").reshape(len(self._twisters), -1)
        uniforms: NDArray[np.float32] = parts[:, :count].astype(np.float32)
        uniforms += np.float32(32768.5)
        uniforms *= np.float32(2.0**-16)
        return uniforms


class Codec(ABC):
    """A way to encode values: those of several senders are encoded and decoded together.

    feeds_back  what a message leaves out is added to the sender's next one
    exact       what arrives is what was sent
    leaves_out  some values are not sent at all, until later

    >>> codecs = {"up": sdfeel.CODECS["int8"]()}
    >>> sdfeel.train(model, data, network=network, steps=4, codecs=codecs).iterations
    4
    """

    feeds_back: ClassVar[bool] = False
    exact: ClassVar[bool] = False
    leaves_out: ClassVar[bool] = False

    @abstractmethod
    def encode(self, values: Floats, draw: Draw) -> Message:
        """The messages of some senders: values is (senders, n), and so is what `draw` gives."""

    @abstractmethod
    def decode(self, message: Message, like: Floats) -> Floats:
        """Return what the receiver makes of a message, in the dtype and shape of `like`."""

    @abstractmethod
    def bits(self, values: int) -> int:
        """Length of a message of so many values."""

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        """The arrays of one message of so many values as they lie on the wire: kind and length.

        Only a deployment asks.
        """
        remedy = "needs layout(values) in a deployment: the arrays of a message on the wire"
        raise InputError("codecs", self, remedy)

    @final
    def pack(self, message: Message) -> bytes:
        """The bytes of one message."""
        count = next(iter(message.values())).shape[0]
        assert count == 1  # noqa: S101 - one sender packs for itself
        return b"".join(
            array.astype(array.dtype.newbyteorder("<")).tobytes() for array in message.values()
        )

    @final
    def unpack(self, data: bytes, values: int) -> Message:
        """The message of bytes that have the right length."""
        message, at = {}, 0
        for name, (kind, length) in self.layout(values).items():
            array = np.frombuffer(data, dtype=kind, count=length, offset=at)
            message[name], at = array[None], at + array.nbytes
        return message

    @final
    def through(self, way: str, values: Floats, draw: Draw) -> Floats:
        """Return what arrives of these values."""
        arrived = self.decode(self.encode(values, draw), values)
        if arrived.shape != values.shape or arrived.dtype != values.dtype:
            raise InputError(
                f"codecs.{way}",
                self,
                f"decoded {arrived.dtype}{list(arrived.shape)} where {values.dtype}"
                f"{list(values.shape)} was sent",
            )
        return arrived


class _EachAlone(Codec):
    """A codec that sends a number of one kind for each value."""

    kind: ClassVar[str]

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        return {"values": (self.kind, values)}

    def bits(self, values: int) -> int:
        return 8 * np.dtype(self.kind).itemsize * values


def _refuse_beyond(codec: str, values: Floats, most: float) -> None:
    """A value that is not finite, or too large, has no place in a message."""
    if not (np.abs(values).max(initial=0.0) < most):
        raise InputError(
            "codecs", codec, "cannot send a change that is not finite: a smaller lr, or float32"
        )


@checked("codecs")
class Float32(_EachAlone):
    """Send values as they are."""

    kind: ClassVar[str] = "<f4"
    exact: ClassVar[bool] = True

    def encode(self, values: Floats, draw: Draw) -> Message:
        return {"values": values}

    def decode(self, message: Message, like: Floats) -> Floats:
        return message["values"]


@checked("codecs")
class Float16(_EachAlone):
    """Round to nearest, with 11 bits of precision; larger values than 65,504 become infinite."""

    kind: ClassVar[str] = "<f2"

    def encode(self, values: Floats, draw: Draw) -> Message:
        if not np.abs(values).max(initial=0.0) < 65520:  # from there on it would become infinite
            raise InputError(
                "codecs", "float16", "a change larger than 65,504 cannot be sent: a smaller lr, or "
                "bfloat16"
            )  # fmt: skip
        return {"values": values.astype("<f2")}

    def decode(self, message: Message, like: Floats) -> Floats:
        return message["values"].astype(like.dtype)


@checked("codecs")
class BFloat16(_EachAlone):
    """Round to nearest, ties to even: the upper half of a float32, with its range."""

    kind: ClassVar[str] = "<u2"

    def encode(self, values: Floats, draw: Draw) -> Message:
        _refuse_beyond("bfloat16", values, 3.39e38)
        words = np.ascontiguousarray(values, dtype="<f4").view("<u4")
        return {"values": ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype("<u2")}

    def decode(self, message: Message, like: Floats) -> Floats:
        return (message["values"].astype("<u4") << 16).view("<f4").astype(like.dtype)


def _scaled(values: Floats, most: int, name: str) -> tuple[Floats, Floats]:
    """Values over their block's scale, (senders, blocks, 256), and the scales."""
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % BLOCK)))
    blocks = padded.reshape(len(values), -1, BLOCK)
    scales = (np.abs(blocks).max(axis=-1) / values.dtype.type(most)).astype("<f4")
    _refuse_beyond(name, scales, np.inf)
    divisors = np.where(scales > 0, scales, np.float32(1)).astype(values.dtype)
    return blocks / divisors[..., None], scales


def _times(numbers: NDArray[np.int8], scales: Floats, like: Floats) -> Floats:
    """Whole numbers (senders, values) times the scales of their blocks."""
    each = np.repeat(scales.astype(like.dtype), BLOCK, axis=1)[:, : numbers.shape[1]]
    products: Floats = numbers.astype(like.dtype) * each
    return products


@checked("codecs")
class Int8(Codec):
    """8 bits a value, rounded at random: unbiased, and off by less than one step of its block."""

    def encode(self, values: Floats, draw: Draw) -> Message:
        scaled, scales = _scaled(values, 127, "int8")
        scaled += draw.uniforms(scaled[0].size).reshape(scaled.shape)
        numbers = np.floor(scaled).clip(-127, 127).astype(np.int8).reshape(len(values), -1)
        return {"scales": scales, "numbers": numbers[:, : values.shape[1]]}

    def decode(self, message: Message, like: Floats) -> Floats:
        return _times(message["numbers"], message["scales"], like)

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        return {"scales": ("<f4", -(-values // BLOCK)), "numbers": ("i1", values)}

    def bits(self, values: int) -> int:
        return 8 * values + 32 * -(-values // BLOCK)


@checked("codecs")
class Int4(Codec):
    """4 bits a value, rounded to nearest, with error feedback; two values a byte."""

    feeds_back: ClassVar[bool] = True

    def encode(self, values: Floats, draw: Draw) -> Message:
        scaled, scales = _scaled(values, 7, "int4")
        numbers = (np.rint(scaled).clip(-7, 7) + 8).astype(np.uint8).reshape(len(values), -1, 2)
        pairs = numbers[:, : -(-values.shape[1] // 2)]
        return {"scales": scales, "numbers": pairs[..., 0] | (pairs[..., 1] << 4)}

    def decode(self, message: Message, like: Floats) -> Floats:
        pairs = message["numbers"]
        numbers = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(len(like), -1)
        whole = numbers[:, : like.shape[1]].astype(np.int8) - np.int8(8)
        return _times(whole, message["scales"], like)

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        return {"scales": ("<f4", -(-values // BLOCK)), "numbers": ("u1", -(-values // 2))}

    def bits(self, values: int) -> int:
        return 4 * values + 32 * -(-values // BLOCK)


@checked("codecs")
class TopK(Codec):
    """Send the k largest values as float32, with error feedback.

    Of equally large values those with the lowest places are sent.

    Args:
        k: None for a hundredth of all values.
    """

    k: Count | None = None

    feeds_back: ClassVar[bool] = True
    leaves_out: ClassVar[bool] = True

    def encode(self, values: Floats, draw: Draw) -> Message:
        _refuse_beyond("top-k", values, np.inf)
        count = self.count(values.shape[1])
        places = largest(values, count)
        sent = np.take_along_axis(values, places, axis=1).astype("<f4")
        return {"values": sent, "places": pack_places(places, values.shape[1])}

    def decode(self, message: Message, like: Floats) -> Floats:
        count = message["values"].shape[1]
        places = unpack_places(message["places"], count, like.shape[1])
        decoded = np.zeros_like(like)
        np.put_along_axis(decoded, places, message["values"].astype(like.dtype), axis=1)
        return decoded

    def count(self, values: int) -> int:
        """k, for messages of so many values."""
        if self.k is None:
            return max(1, values // 100)
        if self.k > values:
            raise InputError("codecs.k", self.k, f"at most {values}: a model has no more values")
        return self.k

    def layout(self, values: int) -> dict[str, tuple[str, int]]:
        count = self.count(values)
        return {"values": ("<f4", count), "places": ("u1", -(-count * place_bits(values) // 8))}

    def bits(self, values: int) -> int:
        return self.count(values) * (32 + place_bits(values))


def largest(values: Floats, count: int) -> NDArray[np.int64]:
    """Find the `count` largest absolute values of each row.

    Of equally large values those with the lowest places are chosen. `np.argpartition` alone leaves
    that open: its choice depends on the processor.

    Args:
        values: (senders, n), all of them finite.
        count: from 1 to n.

    Returns:
        The places (senders, count), in order.
    """
    order = -np.abs(values)
    places = np.argpartition(order, count - 1, axis=1)[:, :count]
    last = np.take_along_axis(order, places[:, -1:], axis=1)  # of the smallest that is chosen
    places.sort(axis=1)
    if np.count_nonzero(order <= last) > places.size:
        for row in range(len(values)):
            larger = places[row][order[row, places[row]] < last[row]]
            ties = np.flatnonzero(order[row] == last[row])
            places[row] = np.sort(np.concatenate([larger, ties[: count - len(larger)]]))
    return places


def place_bits(values: int) -> int:
    """Bits of a place among so many values: ceil(log2 n)."""
    return (values - 1).bit_length()


def pack_places(places: NDArray[np.int64], values: int) -> NDArray[np.uint8]:
    """Bytes of places (senders, count) among so many values, the lowest bit first."""
    width = place_bits(values)
    spread = (places[..., None] >> np.arange(width) & 1).astype(np.uint8)
    return np.packbits(spread.reshape(len(places), -1), axis=1)


def unpack_places(packed: NDArray[np.uint8], count: int, values: int) -> NDArray[np.int64]:
    """The places (senders, count) of such bytes; what is unpacked may be `values` or more."""
    width = place_bits(values)
    spread = np.unpackbits(packed, axis=1, count=count * width)
    bits = spread.reshape(len(packed), count, width).astype(np.int64)
    places: NDArray[np.int64] = (bits << np.arange(width)).sum(axis=2)
    return places


CODECS: dict[str, type[Codec]] = {
    "float32": Float32,
    "float16": Float16,
    "bfloat16": BFloat16,
    "int8": Int8,
    "int4": Int4,
    "top-k": TopK,
}


def codecs_by_way(given: Mapping[str, Codec]) -> dict[str, Codec]:
    """The codec of every way; what is not named goes as it is."""
    return {way: given.get(way, Float32()) for way in WAYS}


def codec_table(codec: Codec) -> Any:
    """Return the table of a codec, as TOML has it; its name alone, where that says it all."""
    table = to_table(codec, CODECS)
    is_usual = table["name"] not in CODECS or codec == CODECS[table["name"]]()
    return table["name"] if is_usual else table
