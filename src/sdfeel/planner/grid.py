"""What a plan chooses from, and the candidates that come of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.codecs import CODECS, WAYS, Codec, codecs_by_way
from sdfeel.algorithm.methods.corrections import CORRECTIONS, Correction
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, Optimizer
from sdfeel.algorithm.methods.rates import Constant, Rate, ShapedRate
from sdfeel.algorithm.paces import Asynchronous, Deadline, Synchronous
from sdfeel.algorithm.schedule import Schedule
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Network, route_of
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.tables import choice, from_table
from sdfeel.validation import whole_number

__all__ = [
    "ALPHAS", "CHOICES", "PLANNED_AVERAGERS", "PLANNED_OPTIMIZERS", "PLANNED_RATES", "TAUS",
    "Choices", "candidates", "choices_of", "paces_beside", "steppings",
]  # fmt: skip

TAUS = (1, 2, 3, 5, 10, 20)
ALPHAS = (1, 2, 3, 5, 10)
# A cloud is only planned with if it is asked for.
PLANNED_AVERAGERS = tuple(name for name in AVERAGERS if route_of(name) != "cloud")
# Top-k is planned with if it is asked for: what it leaves out waits for some n/k messages, longer
# than the runs of a plan last. float16 and bfloat16 cost twice what int8 does.
PLANNED_CODECS = {
    "up": ("float32", "int8", "int4"),
    "down": ("float32", "int8", "int4"),
    "between": ("float32", "int8"),
}
PLANNED_CORRECTIONS = ("none", "two-level")
PLANNED_PACES = ("synchronous", "deadline", "asynchronous")
# What a reproduction chooses from. Adam and AdamW take no correction, and the fast engine not them.
PLANNED_OPTIMIZERS = ("sgd", "momentum")
PLANNED_RATES = (0.003, 0.01, 0.03, 0.1)
# float32 models keep seven digits: an averager that enlarges rounding more is not offered.
MAX_AMPLIFICATION = 1e4
IN_TIME = (0.5, 0.75)  # shares of clients that a deadline waits for

Choices = Mapping[str, tuple[Any, ...] | None]
# None: what the settings have; and where they have nothing special, what is planned with above.
CHOICES: Choices = {
    "tau1": TAUS,
    "tau2": TAUS,
    "alpha": ALPHAS,
    "averager": PLANNED_AVERAGERS,
    **{f"codecs.{way}": None for way in WAYS},
    "correction": None,
    "optimizer": None,
    "lr": None,
    "pace": None,
}


def choices_of(choose: Mapping[str, Any]) -> Choices:
    """Check what a user wants to choose from; what is not named is as usual.

    >>> choices_of({"tau1": (20, 5), "correction": "none"})["tau1"]
    (5, 20)

    Raises:
        InputError: an unknown name, or a value that cannot be right.
    """
    if not isinstance(choose, Mapping):
        raise InputError("choose", choose, 'what to choose from: {"tau1": (1, 5, 20)}')
    choices = dict(CHOICES)
    for name, given in choose.items():
        if name not in CHOICES:
            raise InputError("choose", name, closest(str(name), CHOICES))
        is_list = isinstance(given, Sequence | Set | np.ndarray) and not isinstance(given, str)
        values = tuple(given) if is_list else (given,)
        if not values:
            raise InputError(f"choose[{name!r}]", given, "at least one to choose from")
        if name in ("tau1", "tau2", "alpha"):
            remedy = "whole numbers above 0, such as (1, 3, 20)"
            values = tuple(sorted({whole_number(n, field=name, remedy=remedy) for n in values}))
        for value in values:
            if name == "lr" and (isinstance(value, bool) or not _is_rate(value)):
                raise InputError("lr", given, "numbers above 0, such as (0.01, 0.1)")
            if name == "pace" and value not in PLANNED_PACES:
                raise InputError("pace", value, closest(str(value), PLANNED_PACES))
        choices[name] = values
    return choices


def _is_rate(value: object) -> bool:
    return isinstance(value, int | float | np.number) and bool(0 < value < math.inf)


def steppings(place: Place, choices: Choices) -> list[Place]:
    """The place with every optimizer and every rate to choose from.

    A named optimizer has its defaults; what every optimizer has is as the settings have it, and a
    rate keeps the shape that it has there.
    """
    settings = place.settings
    names, rates = choices["optimizer"], choices["lr"]
    optimizers = [settings.optimizer] if names is None else [_named(n, settings) for n in names]
    lrs = [settings.lr] if rates is None else [_rated(eta, settings.lr) for eta in rates]
    pairs = dict.fromkeys(product(optimizers, lrs))
    return [place.with_settings(optimizer=optimizer, lr=lr) for optimizer, lr in pairs]


def _named(name: Any, settings: Any) -> Optimizer:
    """The optimizer of a name; an object of the user's as it is."""
    known: Optimizer = settings.optimizer
    if isinstance(name, Optimizer):
        return name
    optimizer: Optimizer = from_table("optimizer", {"name": name}, OPTIMIZERS)
    if type(optimizer) is type(known):
        return known
    decay = known.weight_decay or optimizer.weight_decay
    return replace(
        optimizer, weight_decay=decay, prox=known.prox, clip=known.clip, memory=known.memory
    )


def _rated(eta: float, known: Rate) -> Rate:
    return replace(known, eta=eta) if isinstance(known, ShapedRate) else Constant(eta)


def candidates(place: Place, choices: Choices = CHOICES, *, prune: bool = True) -> list[Candidate]:
    """The grid of one optimizer and rate, without what is twice in it or, pruned, cannot be best.

    Twice: the same operator at the same price (chebyshev with alpha 1 is paper with alpha 1).
    Cannot be best (Remark 2): same tau1, tau2 and methods, no better contraction, and no cheaper.

    Raises:
        InputError: an algorithm refuses every candidate; this is the first refusal.
    """
    averagers = _averagers(place.network, choices["alpha"] or (), choices["averager"] or ())
    periods = choices["tau2"] or () if place.network.servers > 1 else (1,)
    grid: list[Candidate] = []
    refusals: list[InputError] = []
    for codecs, correction in _methods(place, choices):
        left, methods = averagers, {"codecs": codecs, "correction": correction}
        for tau1, tau2 in product(choices["tau1"] or (), periods):
            rows: list[Candidate] = []
            for averager in left:
                schedule = Schedule(tau1, tau2, max(1, averager.exchanges))
                try:
                    rows.append(place.candidate(schedule=schedule, averager=averager, **methods))
                except InputError as refusal:
                    refusals.append(refusal)
            rows.sort(key=_price_and_contraction)
            if prune:  # an averager that cannot be best with these periods cannot be with others
                rows = _undominated(rows)
                left = [row.averager for row in rows]
            grid += rows
    if not grid and refusals:
        raise refusals[0]
    grid.sort(key=lambda row: (row.tau1, row.tau2, *_price_and_contraction(row)))
    return grid


def _methods(
    place: Place, choices: Choices
) -> Iterator[tuple[Mapping[str, Codec], Correction | None]]:
    """Codecs with corrections, plain ones first: as chosen; else as set; else as usual.

    Codecs down only where a profile has a rate for it, and between servers only if there are
    several.
    """
    settings, by_way = place.settings, []
    has_way = {"up": True, "down": place.profile.server_client is not None}
    has_way["between"] = place.network.servers > 1
    for way, codec in settings.codecs.items():
        usual = PLANNED_CODECS[way] if has_way[way] else ("float32",)
        values = choices[f"codecs.{way}"] or ((codec,) if not codec.exact else usual)
        by_way.append([choice(f"codecs.{way}", Codec, CODECS)(value) for value in values])
    known = dict.fromkeys(CORRECTIONS, Correction)
    set_one = None if settings.correction is None else (settings.correction,)
    for value in choices["correction"] or set_one or PLANNED_CORRECTIONS:
        correction = choice("correction", Correction, known, none="none")(value)
        for codecs in product(*by_way):
            yield codecs_by_way(dict(zip(settings.codecs, codecs, strict=True))), correction


def _averagers(network: Network, alphas: Sequence[int], names: Sequence[Any]) -> list[Averager]:
    averagers: list[Averager] = []
    for name in names:
        for alpha in alphas if network.averager(name).takes_alpha else (1,):
            averager = network.averager(name, alpha)
            is_known = any(_is_same(averager, known) for known in averagers)
            if averager.amplification <= MAX_AMPLIFICATION and not is_known:
                averagers.append(averager)
    return averagers


def _is_same(a: Averager, b: Averager) -> bool:
    """Whether the result and its price are the same."""
    has_same_price = (a.model_times, a.route == "cloud") == (b.model_times, b.route == "cloud")
    return has_same_price and bool(np.allclose(a.operator, b.operator, atol=1e-9))


def _price_and_contraction(row: Candidate) -> tuple[float, float]:
    """Prices are sums of many events: the last digits do not tell two apart."""
    return float(f"{row.price.per_iteration:.9g}"), row.averager.contraction


def _undominated(rows: Sequence[Candidate]) -> list[Candidate]:
    """Of rows with the same periods and methods, by price: those that improve the contraction."""
    best: list[Candidate] = []
    for row in rows:
        if all(row.averager.contraction < b.averager.contraction - 1e-12 for b in best):
            best.append(row)
    return best


def paces_beside(place: Place, choices: Choices, best: Candidate) -> list[Candidate]:
    """Candidates of other paces than that of the best in rounds, if devices differ.

    deadline      the schedule of the best, in periods that leave the slowest clients out
    asynchronous  every tau1 to choose from, which gives the servers' own deadlines, with full
                  compensation and with none; without what needs rounds of all servers
    """
    algorithm = place.algorithm(**best.settings)
    usual = PLANNED_PACES if best.pace == Synchronous() and _devices_differ(algorithm) else ()
    names = choices["pace"] or usual
    variants: list[dict[str, Any]] = []
    if "deadline" in names:
        variants += [{"pace": Deadline(seconds)} for seconds in _in_time(algorithm)]
    if "asynchronous" in names:
        codecs = codecs_by_way({way: best.codecs[way] for way in ("up", "down")})
        turns = {"codecs": codecs, "correction": None}
        for tau1, compensation in product(choices["tau1"] or (), (1.0, 0.0)):
            pace = Asynchronous(compensation=compensation, psi="rounds")
            schedule = Schedule(tau1, 1, best.alpha)
            variants.append({**turns, "schedule": schedule, "pace": pace})
    rows: list[Candidate] = []
    for settings in variants:
        try:
            rows.append(place.candidate(**{**best.settings, **settings}))
        except InputError:  # a method of the user's needs rounds, say
            continue
    return rows


def _devices_differ(algorithm: Algorithm) -> bool:
    """Whether some client computes or sends more slowly than another."""
    times = algorithm.uplink.latencies
    return bool(np.ptp(times.t_cmp) > 0 or np.ptp(times.t_ct_sr) > 0)


def _in_time(algorithm: Algorithm) -> list[float]:
    """Lengths of a period in which some shares of the clients are done, and one of each cluster."""
    uplink, members = algorithm.uplink, algorithm.network.clusters.members
    needed = algorithm.schedule.at(0).tau1 * uplink.latencies.t_cmp
    needed = needed + uplink.seconds(np.ones(len(needed), dtype=bool))
    least = max(float(needed[list(cluster)].min()) for cluster in members)
    lengths = {max(float(np.quantile(needed, share)), least) for share in IN_TIME}
    return sorted(seconds for seconds in lengths if (needed > seconds * (1 + 1e-9)).any())
