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

Error feedback on the way up is a row that each client keeps. On the other two it needs none: the
difference to what the receivers hold has in it all that did not arrive before.

The clock asks `bits`, and nothing else. A codec of one's own is a subclass of `Codec`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sdfeel.algorithm.blocks import Int4, Int8
from sdfeel.algorithm.codec import BFloat16, Codec, Draw, Float16, Float32
from sdfeel.algorithm.tables import by_name
from sdfeel.algorithm.top_k import TopK
from sdfeel.errors import InputError, closest

__all__ = ["CODECS", "WAYS", "Codec", "Draw", "codec_of", "codecs_of"]

WAYS = ("up", "down", "between")

CODECS: dict[str, type[Codec]] = {
    "float32": Float32,
    "float16": Float16,
    "bfloat16": BFloat16,
    "int8": Int8,
    "int4": Int4,
    "top-k": TopK,
}


def codec_of(way: str, codec: str | Codec) -> Codec:
    """A codec by its name, or the user's own."""
    return by_name(f"codecs.{way}", codec, CODECS, Codec)


def codecs_of(given: Mapping[str, str | Codec] | None) -> dict[str, Codec]:
    """The codec of every way; what is not named goes as it is."""
    given = given or {}
    if not isinstance(given, Mapping):
        raise InputError("codecs", given, 'a codec by way, such as {"up": "int8"}')
    for way in given:
        if way not in WAYS:
            raise InputError("codecs", way, f"a way that models take; {closest(way, WAYS)}")
    return {way: codec_of(way, given.get(way, "float32")) for way in WAYS}
