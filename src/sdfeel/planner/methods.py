"""What may stand beside a schedule: a codec for each way that models take, and a correction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from sdfeel.algorithm.codecs import CODECS, WAYS, Codec, codec_of
from sdfeel.algorithm.correction import Correction, correction_of

__all__ = ["PLAIN", "PLANNED_CODECS", "PLANNED_CORRECTIONS", "Methods", "methods_of"]

# Top-k is planned with if it is asked for: what it leaves out waits for some n/k messages, longer
# than the runs of a plan last. float16 and bfloat16 cost twice what int8 does.
PLANNED_CODECS = {
    "up": ("float32", "int8", "int4"),
    "down": ("float32", "int8", "int4"),
    "between": ("float32", "int8"),
}
PLANNED_CORRECTIONS = ("none", "two-level")


@dataclass(frozen=True)
class Methods:
    """One choice of all four."""

    up: Codec = field(default_factory=lambda: codec_of("up", "float32"))
    down: Codec = field(default_factory=lambda: codec_of("down", "float32"))
    between: Codec = field(default_factory=lambda: codec_of("between", "float32"))
    correction: Correction | None = None

    @property
    def codecs(self) -> dict[str, Codec]:
        return {way: getattr(self, way) for way in WAYS}

    @property
    def lossy(self) -> dict[str, Codec]:
        """The ways on which what arrives is not what was sent."""
        return {way: codec for way, codec in self.codecs.items() if not codec.exact}

    @property
    def names(self) -> dict[str, str]:
        """What is chosen by the key that sets it: `codecs.up` and so on."""
        found = {f"codecs.{way}": codec_name(codec) for way, codec in self.codecs.items()}
        return found | {"correction": self.correction.name if self.correction else "none"}

    @property
    def kind(self) -> str:
        """By what a heat is varied: who corrects, and what clients send and get."""
        return str(replace(self, between=PLAIN.between))

    @property
    def plain(self) -> bool:
        return not self.lossy and self.correction is None

    def __str__(self) -> str:
        words = [f"{codec_name(codec)} {way}" for way, codec in self.lossy.items()]
        return ", ".join(
            words + ([f"{self.correction.name} correction"] if self.correction else [])
        )


PLAIN = Methods()


def codec_name(codec: Codec) -> str:
    """As settings call it; one's own goes by its class."""
    kind = type(codec)
    return next((name for name, known in CODECS.items() if known is kind), kind.__name__)


def methods_of(
    codecs: Mapping[str, Iterable[str | Codec]],
    corrections: Iterable[str | Correction | None] = ("none",),
) -> list[Methods]:
    """All combinations, the plain ones first; a way that is not named is float32."""
    by_way = [[codec_of(way, one) for one in codecs.get(way, ("float32",))] for way in WAYS]
    also = [correction_of(one) for one in corrections]
    return [
        Methods(up, down, between, one) for one in also for up, down, between in product(*by_way)
    ]
