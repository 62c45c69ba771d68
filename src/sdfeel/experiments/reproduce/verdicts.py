"""Statements held against curves, seed by seed.

For every seed a claim gives one number, its value, and a margin that is positive where the seed
agrees with the claim. Curves of one seed share partition, first model and batches, so differences
are paired. Over several seeds

    confirmed      the 95 % interval of the margins (Student's t) lies above 0; or every margin is
                   positive and their mean exceeds the noise of the curves
    not confirmed  the same below 0; also if the curves coincide
    open           else

The noise of the curves is twice the standard error that follows from how evaluations scatter around
their neighbours. With one seed it is all there is. With three seeds, chance alone makes all signs
right once in eight times: the interval says how far to trust it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd

from sdfeel.experiments.reproduce.cycles import measured_cycle
from sdfeel.experiments.reproduce.measures import (
    END,
    MIDDLE,
    WHOLE,
    level,
    level_noise,
    noise,
    shared_stretch,
    time_ratio,
)
from sdfeel.experiments.reproduce.spec import Claim
from sdfeel.records.curves import Curve

Outcome = Literal["confirmed", "not confirmed", "open"]
# Below this part of the measured level a difference is what rounding grows to: curves coincide.
ROUNDING = 1e-4
# What values of these kinds are in; those of the others are in the unit of the curves.
UNITS = {
    "falls": "relative fall",
    "keeps": "of the second's",
    **dict.fromkeys(("behind", "sooner", "rougher"), "ratio"),
    **dict.fromkeys(("lasts", "cycle"), "s"),
}
PARTS = {"end": END, "whole": WHOLE}
# Student's t, 97.5 %, for 1, 2, ... degrees of freedom.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)


@dataclass(frozen=True)
class Finding:
    """The result of one seed: the value, by how much it agrees, and how noisy that is."""

    value: float
    margin: float
    tolerance: float
    is_same: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of a claim.

    value     the mean over seeds; spread: their least and most
    interval  95 % for the mean of the value; None with one seed
    """

    figure: str
    claim: Claim
    verdict: Outcome
    note: str
    values: tuple[float, ...]

    @property
    def finite(self) -> list[float]:
        return [value for value in self.values if math.isfinite(value)]

    @property
    def value(self) -> float | None:
        return float(np.mean(self.finite)) if self.finite else None

    @property
    def spread(self) -> tuple[float, float] | None:
        return (min(self.finite), max(self.finite)) if len(self.finite) > 1 else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return _interval(self.values)

    @property
    def unit(self) -> str:
        """What the value is measured in."""
        kind, y = self.claim.kind, self.claim.y
        if kind in UNITS:
            return UNITS[kind]
        return next((word for word in ("accuracy", "loss") if word in y), y.replace("_", " "))

    def as_dict(self) -> dict[str, Any]:
        """Write it as JSON can hold it: what is not finite is None."""
        claim = self.claim
        return {
            "figure": self.figure,
            "name": claim.name,
            "kind": claim.kind,
            "claim": claim.says,
            "paper": claim.paper,
            "reading": claim.reading,
            "verdict": self.verdict,
            "value": self.value,
            "unit": self.unit,
            "threshold": claim.threshold,
            "published": claim.published,
            "tolerance": claim.tolerance,
            "spread": self.spread,
            "interval": self.interval,
            "seeds": len(self.values),
            "values": [value if math.isfinite(value) else None for value in self.values],
            "note": self.note,
        }


def judge(
    figure: str,
    claim: Claim,
    runs: Mapping[str, Sequence[pd.DataFrame]],
    lasted: Mapping[str, Sequence[float]] | None = None,
) -> Verdict:
    """Decide on a claim; `runs` has for every label one table of metrics per seed, in order.

    Seeds that not every curve of the claim has are left out. `lasted` has the runs' real seconds.
    """
    seeds = min((len(runs.get(label, ())) for label in claim.curves), default=0)
    if claim.kind == "cycle":
        findings = [_published(claim, measured_cycle(claim))]
    elif claim.kind == "lasts":
        longest = [
            max((lasted or {})[label][seed] for label in claim.curves) for seed in range(seeds)
        ]
        findings = [Finding(seconds, claim.threshold - seconds, 0.0) for seconds in longest]
    else:
        findings = [
            _found(claim, [_curve(runs[label][seed], claim) for label in claim.curves])
            for seed in range(seeds)
        ]
    verdict, note = decide(findings)
    note = "computed, nothing is drawn" if claim.kind == "cycle" else note
    return Verdict(figure, claim, verdict, note, tuple(finding.value for finding in findings))


def _found(claim: Claim, curves: Sequence[Curve]) -> Finding:
    """Measure one seed; nothing where a curve ends before the place that the claim is about."""
    if claim.where is not None and min(curve.last for curve in curves) < claim.where:
        return Finding(math.nan, math.nan, 0.0)
    return FINDERS[claim.kind](claim, curves)


def decide(findings: Sequence[Finding]) -> tuple[Outcome, str]:
    """Return the outcome, and in a few words why."""
    margins = [finding.margin for finding in findings]
    missing = sum(math.isnan(margin) for margin in margins)
    if missing or not margins:
        where = f" on {missing} of {len(margins)} seeds" if missing < len(margins) else ""
        return "open", f"not enough was recorded{where}"
    if all(finding.is_same for finding in findings):
        return "not confirmed", "the curves coincide"
    return _one_seed(findings[0]) if len(margins) == 1 else _many_seeds(findings)


def _one_seed(finding: Finding) -> tuple[Outcome, str]:
    if abs(finding.margin) <= finding.tolerance:
        return "open", "one seed, no spread; within the noise of the curves"
    outcome: Outcome = "confirmed" if finding.margin > 0 else "not confirmed"
    beyond = "; beyond the noise of the curves" if finding.tolerance else ""
    return outcome, f"one seed, no spread{beyond}"


def _many_seeds(findings: Sequence[Finding]) -> tuple[Outcome, str]:
    margins = [finding.margin for finding in findings]
    right = sum(margin > 0 for margin in margins)
    note = f"{right} of {len(margins)} seeds agree"
    low, high = _interval(margins) or (-math.inf, math.inf)
    if low > 0 or high < 0:
        return "confirmed" if low > 0 else "not confirmed", note
    if 0 < right < len(margins):
        return "open", note
    noisy = math.hypot(*(finding.tolerance for finding in findings)) / len(margins)
    if not abs(float(np.mean(margins))) > noisy:
        return "open", f"{note}, by no more than the noise of the curves"
    return "confirmed" if right else "not confirmed", f"{note}; their 95 % interval includes 0"


def _gaps(claim: Claim, pairs: Sequence[tuple[Curve, Curve]]) -> Finding:
    """Measure by how much the first of each pair is better; the least of them counts."""
    stop = shared_stretch([curve for pair in pairs for curve in pair])
    part = PARTS[claim.at]
    gaps = []
    for better, worse in pairs:
        ends = level(better, stop, part), level(worse, stop, part)
        gap = ends[1] - ends[0] if better.is_falling else ends[0] - ends[1]
        error = math.hypot(level_noise(better, stop, part), level_noise(worse, stop, part))
        is_same = abs(gap) <= ROUNDING * max(abs(ends[0]), abs(ends[1]))
        gaps.append(Finding(gap, gap - claim.threshold, 2 * error, is_same))
    return min(gaps, key=lambda finding: finding.margin)


def _order(claim: Claim, curves: Sequence[Curve]) -> Finding:
    return _gaps(claim, list(pairwise(curves)))


def _within(claim: Claim, curves: Sequence[Curve]) -> Finding:
    gap = _order(claim, curves)
    return Finding(abs(gap.value), claim.threshold - abs(gap.value), gap.tolerance)


def _keeps(claim: Claim, curves: Sequence[Curve]) -> Finding:
    """Measure by which part of the second's level the first is worse; below 0 it is better."""
    gap = _order(claim, curves)
    size = abs(level(curves[1], shared_stretch(curves), PARTS[claim.at]))
    lost = -gap.value / size
    return Finding(lost, claim.threshold - lost, gap.tolerance / size)


def _most(claim: Claim, curves: Sequence[Curve]) -> Finding:
    value = max(float(curve.y.max()) for curve in curves)
    return Finding(value, claim.threshold - value, 0.0)


def _behind(claim: Claim, curves: Sequence[Curve]) -> Finding:
    leader, laggard = curves
    stop = shared_stretch(curves)
    ratio = time_ratio(leader, laggard)
    error = 2 * level_noise(laggard, stop)
    low, high = (time_ratio(leader, laggard, shift) for shift in (-error, error))
    tolerance = abs(low - high) / 2
    return Finding(ratio, ratio - claim.threshold, tolerance)


def _sooner(claim: Claim, curves: Sequence[Curve]) -> Finding:
    """Compare times to a level: where the second does not get there, it is at least its length."""
    assert claim.level is not None  # noqa: S101 - the claim was validated
    error = 2 * max(noise(curve) for curve in curves)
    ratios = []
    for goal in (claim.level, claim.level - error, claim.level + error):
        first, second = (curve.reaches(goal) for curve in curves)
        ratio = (curves[1].last if second is None else second) / first if first else math.nan
        is_too_short = second is None and ratio <= claim.threshold  # it says nothing either way
        ratios.append(math.nan if is_too_short else ratio)
    known = [ratio for ratio in ratios[1:] if math.isfinite(ratio)]
    tolerance = max((abs(ratio - ratios[0]) for ratio in known), default=0.0)
    return Finding(ratios[0], ratios[0] - claim.threshold, tolerance)


def _rougher(claim: Claim, curves: Sequence[Curve]) -> Finding:
    rough, smooth = (noise(curve) for curve in curves)
    ratio = rough / smooth if smooth > 0 else math.inf
    # A deviation from n values is known to about 1 / sqrt(2 n) of itself.
    count = min(len(curve.y) for curve in curves) / 2
    return Finding(ratio, ratio - claim.threshold, 2 * ratio / math.sqrt(max(count, 1.0)))


def _falls(claim: Claim, curves: Sequence[Curve]) -> Finding:
    falls = []
    for curve in curves:
        middle, end = level(curve, curve.last, MIDDLE), level(curve, curve.last, END)
        drop = (middle - end if curve.is_falling else end - middle) / abs(middle)
        error = 2 * math.sqrt(2) * level_noise(curve, curve.last) / abs(middle)
        falls.append(Finding(drop, drop - claim.threshold, error))
    return min(falls, key=lambda finding: finding.margin)


def _value(claim: Claim, curves: Sequence[Curve]) -> Finding:
    """Take the curve where others published it; beyond its end nothing was recorded."""
    (curve,) = curves
    if claim.where is None:
        return _published(claim, level(curve, curve.last, PARTS[claim.at]))
    return _published(claim, float(np.interp(claim.where, curve.x, curve.y)))


def _published(claim: Claim, value: float) -> Finding:
    assert claim.published is not None  # noqa: S101 - the claim was validated
    assert claim.tolerance is not None  # noqa: S101
    return Finding(value, claim.tolerance - abs(value - claim.published), 0.0)


FINDERS: dict[str, Callable[[Claim, Sequence[Curve]], Finding]] = {
    "order": _order,
    "best": lambda claim, curves: _gaps(claim, [(curves[0], rival) for rival in curves[1:]]),
    "within": _within,
    "keeps": _keeps,
    "most": _most,
    "behind": _behind,
    "sooner": _sooner,
    "rougher": _rougher,
    "falls": _falls,
    "value": _value,
}


def _curve(metrics: pd.DataFrame, claim: Claim) -> Curve:
    nothing = np.array([0.0, 1.0])
    is_falling = "accuracy" not in claim.y
    curve = Curve.of(metrics, claim.x, claim.y, is_falling)
    return curve or Curve(nothing, nothing * math.nan, is_falling)


def _interval(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    t = STUDENT[min(len(values) - 1, len(STUDENT)) - 1]
    half = t * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    middle = float(np.mean(values))
    return middle - half, middle + half
