"""What cannot go together is computed: what one part of an algorithm needs, no other may break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sdfeel.errors import InputError, closest, warn

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm

# What a part may need and another may break: with what it is called in a refusal.
WORDS = {
    "rounds": "rounds of all servers",
    "everyone": "all clients in every period: they wait for each other",
    "servers": "servers beside the clients",
    "clusters": "servers that take several clients at once",
    "exchanges": "servers that meet others",
    "several servers": "several servers, as sd-feel has them, which send models to each other",
    "mean": "servers that take the mean of their clients, eq. (3)",
    "affine": "an optimizer that is affine in the gradient (sgd, momentum; no clip): else how far "
    "a client moved does not say what its gradients were",
    "fresh": "optimizers that begin anew in every period, memory = reset",
    "dense": "messages with all values of a model, such as int8",
    "models": "exchanges of models: an all-reduce sends sums of them, which no codec has encoded",
    "averages": "exchanges without negative weights, such as averager metropolis: others enlarge "
    "what it rounds off",
    "one mixing": "one mixing of the servers for all rounds",
    "same neighbours": "neighbours that stay: it sends the change since the last exchange",
    "one schedule": "a schedule of numbers, not of functions of the round",
}

# By how much exchanges may enlarge what a codec rounds off, where it rounds as finely as int8.
ENLARGED = 100.0


@dataclass(frozen=True)
class Part:
    """A part of an algorithm: the setting that it comes from, its value and name."""

    field: str
    value: Any
    label: str
    needs: frozenset[str] = frozenset()
    breaks: frozenset[str] = frozenset()


def check_compatible(algorithm: Algorithm) -> None:
    """Raise InputError, before any training, with one sentence that names both parts."""
    parts = list(_parts(algorithm))
    for part in parts:
        for unknown in sorted((part.needs | part.breaks) - set(WORDS)):
            raise InputError(f"{part.field}.needs", unknown, closest(unknown, WORDS))
        for other in parts:
            for word, meaning in WORDS.items():
                if word in part.needs and word in other.breaks and other is not part:
                    remedy = f"needs {meaning}; not so with {other.label}"
                    raise InputError(part.field, part.value, remedy)
    _check_rounding(algorithm)


def _parts(algorithm: Algorithm) -> Iterator[Part]:
    scheme, pace, averager = algorithm.scheme, algorithm.pace, algorithm.averager
    apart = {"servers", "clusters"} if scheme.servers == "clients" else set()
    meets = averager.exchanges > 0 or scheme.servers != "clients" or algorithm.network.clients == 1
    needs = frozenset({"everyone", "rounds"} if apart and meets else ())
    breaks = frozenset(apart if meets else apart | {"exchanges"})
    if scheme.servers == "one":
        breaks = frozenset({"several servers"})
    yield Part("scheme", scheme.name, f"scheme {scheme.name}", needs, breaks)
    name = type(pace).__name__
    yield Part("pace", name, f"the pace {name}", pace.needs, pace.breaks)
    if algorithm.participation.beta < 1:
        beta = algorithm.participation.beta
        yield Part("participation", beta, f"participation = {beta}", breaks=frozenset({"everyone"}))
    if algorithm.uplink.presence is not None:
        label = "devices that come and go"
        yield Part("profile", "availability", label, breaks=frozenset({"everyone"}))
    if algorithm.schedule.changes:
        label, breaks = "a schedule that changes", frozenset({"one schedule", "one mixing"})
        yield Part("schedule", algorithm.schedule, label, breaks=breaks)
    if algorithm.network.changes:
        label, breaks = "a graph that changes", frozenset({"one mixing", "same neighbours"})
        yield Part("network", algorithm.network, label, breaks=breaks)
    yield from _exchanges(algorithm)
    for field, method in algorithm.parts.items():
        label = f"{field} {method.name}"
        yield Part(field, method.name, label, frozenset(method.needs), frozenset(method.breaks))


def _exchanges(algorithm: Algorithm) -> Iterator[Part]:
    """Return the parts that stand for exchanges: averager and codecs of the three ways."""
    averager, codecs = algorithm.averager, algorithm.codecs
    words = {"models"} if averager.route == "all-reduce" else set()
    words |= {"averages"} if averager.has_negative_weights or averager.overshoots else set()
    label = f"averager {averager.name}"
    yield Part("averager", averager.name, label, breaks=frozenset(words))
    for way in ("up", "down"):
        if not codecs[way].exact:
            breaks = frozenset({"dense"} if way == "up" and codecs[way].leaves_out else ())
            field = f"codecs.{way}"
            label = f"{field} = {codecs[way]}"
            yield Part(field, codecs[way], label, frozenset({"servers"}), breaks)
    between = codecs["between"]
    if not between.exact:
        needs = {"exchanges", "several servers"}
        if algorithm.network.servers > 1:
            needs |= {"models", "same neighbours"} | ({"averages"} if between.feeds_back else set())
        yield Part("codecs.between", between, f"codecs.between = {between}", frozenset(needs))


def _check_rounding(algorithm: Algorithm) -> None:
    """Refuse codecs whose rounding the averager would enlarge, or that wait for long."""
    between, averager, up = algorithm.codecs["between"], algorithm.averager, algorithm.codecs["up"]
    if not between.exact and algorithm.network.servers > 1:
        if between.leaves_out:
            raise InputError(
                "codecs.between",
                between,
                "leaves values out of a message: servers would mix what they do not hold; use int8",
            )
        if averager.amplification > ENLARGED:
            raise InputError(
                "codecs.between",
                between,
                f"averager {averager.name!r} enlarges what a codec rounds off "
                f"{averager.amplification:.0f}-fold on this network; `paper` or `metropolis` do "
                "not",
            )
    is_everyone = algorithm.participation.beta == 1 and algorithm.participation.drawn is None
    if up.feeds_back and not is_everyone:
        warn(
            f"codecs.up = {up}: error feedback waits while a client is absent, so it is slower by "
            "about (clients / those present); int8 has none",
        )
