"""Theorem 1 on a network: the contraction, the shares and the participation come from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sdfeel.network import Averager, Network
from sdfeel.theory.bound import Constants, Theorem1, Version, lemma2, theorem1
from sdfeel.theory.participation import HEURISTIC, ParticipationTerms, participation

__all__ = ["NetworkBound", "bound_on"]


@dataclass(frozen=True)
class NetworkBound:
    """Theorem 1 for a network, and what a reader must know about it beside the numbers."""

    theorem: Theorem1
    zeta: float
    averager: Averager
    participation: ParticipationTerms
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON: what is infinite becomes None."""
        found, schedule = self.theorem, self.theorem.schedule
        return {
            "version": schedule.version,
            "zeta": self.zeta,
            "contraction": schedule.contraction,
            "averager": self.averager.name,
            "Lambda": schedule.Lambda,
            "V1": _finite(found.V1),
            "V2": _finite(found.V2),
            "V3": schedule.V3,
            "V1_numerator": schedule.V1_numerator,
            "bound": _finite(found.bound),
            "terms": {name: _finite(value) for name, value in found.terms.items()},
            "dominant_term": found.dominant,
            "deviation": {name: _finite(value) for name, value in found.deviation.items()},
            "conditions": {
                "1 - eta L - 8 eta^2 L^2 V2 >= 0": _finite(found.slack),
                "1 - 16 eta^2 L^2 V3 > 0": found.denominator,
            },
            "conditions_hold": found.conditions_hold,
            "max_lr": found.max_lr,
            "verdict": found.verdict,
            "notes": list(self.notes),
        }


def bound_on(
    network: Network,
    constants: Constants,
    *,
    tau1: int,
    tau2: int,
    alpha: int = 1,
    averager: str = "paper",
    lr: float,
    iterations: int,
    beta: float = 1.0,
    version: Version = "literal",
) -> NetworkBound:
    """Theorem 1 for a schedule on `network`, in one of its two versions.

    beta below 1 is the heuristic of `sdfeel.theory.participation`.
    """
    applied = network.averager(averager, alpha)
    schedule = lemma2(tau1, tau2, applied.contraction, version)
    present = participation(network.shares, beta)
    found = theorem1(schedule, constants, lr, iterations, present.weights)
    if beta < 1:
        noise = present.noise(constants.variance, constants.non_iid, tau1)
        terms = found.terms | {
            "start": found.terms["start"] / present.moving,
            "noise": lr * constants.smoothness * noise,
        }
        found = replace(found, terms=terms)
    return NetworkBound(
        found, network.zeta, applied, present, _notes(network, applied, found, beta)
    )


def _notes(network: Network, averager: Averager, found: Theorem1, beta: float) -> tuple[str, ...]:
    notes = []
    shares = network.shares.cluster
    if found.schedule.version == "literal" and network.servers > 1 and np.ptp(shares) > 1e-12:
        plain = float(np.linalg.norm(averager.operator - shares[:, None], ord=2))
        notes.append(
            f"the clusters differ in size: as printed the proof needs an operator norm of "
            f"{averager.contraction:.4g}, but it is {plain:.4g}; in the m-weighted norm it is "
            f"{averager.contraction:.4g}, so read the version 'corrected'"
        )
    if not math.isclose(averager.contraction, network.zeta**averager.exchanges, abs_tol=1e-12):
        notes.append(f"zeta^alpha is replaced by the exact contraction of {averager.name}")
    if beta < 1:
        notes.append(HEURISTIC)
    return tuple(notes)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
