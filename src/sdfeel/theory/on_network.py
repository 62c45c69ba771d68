"""Theorem 1 on a network: the contraction, the shares and the participation come from it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from sdfeel.network import Averager, Network
from sdfeel.theory.bound import Constants, Lemma2, Theorem1, Version
from sdfeel.theory.participation import HEURISTIC, ParticipationTerms, participation


@dataclass(frozen=True)
class NetworkBound:
    """Theorem 1 for a network, and what a reader must know about it beside the numbers."""

    theorem: Theorem1
    zeta: float
    averager: Averager
    participation: ParticipationTerms
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the numbers for JSON, in which what is infinite becomes None."""
        theorem, schedule = self.theorem, self.theorem.schedule
        return {
            "version": schedule.version,
            "zeta": self.zeta,
            "contraction": schedule.contraction,
            "averager": self.averager.name,
            "Lambda": schedule.Lambda,
            "V1": _finite(theorem.V1),
            "V2": _finite(theorem.V2),
            "V3": schedule.V3,
            "V1_numerator": schedule.V1_numerator,
            "bound": _finite(theorem.bound),
            "terms": {name: _finite(value) for name, value in theorem.terms.items()},
            "dominant_term": theorem.dominant,
            "deviation": {name: _finite(value) for name, value in theorem.deviation.items()},
            "conditions": {
                "1 - eta L - 8 eta^2 L^2 V2 >= 0": _finite(theorem.slack),
                "1 - 16 eta^2 L^2 V3 > 0": theorem.denominator,
            },
            "conditions_hold": theorem.conditions_hold,
            "max_lr": theorem.max_lr,
            "verdict": theorem.verdict,
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
    """Apply Theorem 1 to a schedule on `network`, in one of its two versions.

    `beta` below 1 is the heuristic of `sdfeel.theory.participation`.

    Example:
        >>> from sdfeel import Network
        >>> from sdfeel.theory import Constants, bound_on
        >>> constants = Constants(smoothness=1, variance=1, non_iid=1, gap=1)
        >>> result = bound_on(
        ...     Network.ring(10, 5), constants, tau1=5, tau2=1, lr=0.001, iterations=1000
        ... )
        >>> result.theorem.conditions_hold
        True
    """
    applied = network.averager(averager, alpha)
    present = participation(network.shares, beta)
    theorem = Theorem1(
        Lemma2(tau1, tau2, applied.contraction, version),
        constants,
        lr,
        iterations,
        present.weights,
        present.moving,
        present.selection,
    )
    notes = _notes(network, applied, version, beta)
    return NetworkBound(theorem, network.zeta, applied, present, notes)


def _notes(network: Network, averager: Averager, version: Version, beta: float) -> tuple[str, ...]:
    notes = []
    shares = network.shares.cluster
    if version == "literal" and network.servers > 1 and np.ptp(shares) > 1e-12:
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
