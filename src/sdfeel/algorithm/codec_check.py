"""Which codecs an algorithm cannot carry models with: refused or warned of before any training."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

__all__ = ["check_codecs"]

# By how much exchanges may enlarge what a codec rounds off, where it rounds as finely as int8.
ENLARGED = 100.0


def check_codecs(algorithm: Algorithm) -> None:
    """A codec of the user's is asked for its `bits` before; one that lacks values says so there."""
    up, between = algorithm.codecs["up"], algorithm.codecs["between"]
    if not between.exact and algorithm.network.servers > 1:
        _check_between(algorithm)
    corrects = algorithm.correction is not None and algorithm.correction.clients
    if up.leaves_out and corrects:
        raise InputError(
            "codecs.up",
            up,
            "leaves values out of a message, so what arrives does not say how far a client moved; "
            "a correction of clients needs another: int8",
        )
    everyone = algorithm.participation.beta == 1 and algorithm.participation.drawn is None
    if up.keeps and not everyone:
        warnings.warn(
            f"codecs.up = {up}: error feedback waits while a client is absent, so it is slower by "
            "about (clients / those present); int8 has none",
            UserWarning,
            stacklevel=4,
        )


def _check_between(algorithm: Algorithm) -> None:
    between, averager = algorithm.codecs["between"], algorithm.averager
    if averager.route == "all-reduce":
        raise InputError(
            "codecs.between",
            between,
            "an all-reduce sends sums of models, which no codec has encoded: float32, or an "
            "averager that exchanges models",
        )
    if between.leaves_out:
        raise InputError(
            "codecs.between",
            between,
            "leaves values out of a message: servers would mix what they do not hold; use int8",
        )
    if between.keeps and (averager.has_negative_weights or averager.overshoots):
        raise InputError(
            "codecs.between",
            between,
            f"rounds so coarsely that exchanges of averager {averager.name!r}, which overshoot "
            "here, enlarge what it rounds off: int8, or averager metropolis",
        )
    if averager.amplification > ENLARGED:
        raise InputError(
            "codecs.between",
            between,
            f"averager {averager.name!r} enlarges what a codec rounds off "
            f"{averager.amplification:.0f}-fold on this network; `paper` or `metropolis` do not",
        )
