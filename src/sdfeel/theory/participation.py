"""Partial participation in the bound: a heuristic, checked against simulation, not a theorem.

Each client takes part in an upload period (tau1 iterations) with probability beta, the weights
renormalise over those present, and a cluster with nobody stands still. Three things change in
Theorem 1's one-step inequality, and the heuristic changes just these:

- the share of the data that moves at all: q = 1 - sum_d m-tilde_d (1-beta)^|C_d|; the first term
  becomes 2 Delta / (eta K q);
- the noise is averaged over fewer clients: sum_i m_i^2 becomes E sum_i omega_i^2, with omega_i the
  weight that client i really had;
- the clients present are not representative: the mean gradient of a period is off by
  sum_i (omega_i - m_i) grad F_i, the same error for tau1 iterations in a row, which adds
  tau1 kappa^2 E sum_i (omega_i - m_i)^2 to the noise.

V1 and V2 stay as they are. What is missing to a proof: the errors of one period are independent of
the next, but not of the deviation inside it, and a cluster's standing still is not unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError
from sdfeel.network import Shares

HEURISTIC = (
    "participation below 1 enters as a heuristic that agrees with simulation; "
    "Theorem 1 does not cover it"
)


@dataclass(frozen=True)
class ParticipationTerms:
    """The three numbers of the heuristic for one beta.

    Attributes:
        moving: q, the expected share of the data whose cluster moves in a period.
        weights: E sum_i omega_i^2, in the place of sum_i m_i^2.
        selection: E sum_i (omega_i - m_i)^2; 0 if all clients take part.
    """

    beta: float
    moving: float
    weights: float
    selection: float


def participation(shares: Shares, beta: float = 1.0) -> ParticipationTerms:
    """Compute the heuristic's numbers: exact for the weights, whatever the clients' sizes."""
    if not 0 < beta <= 1:
        raise InputError("beta", beta, "a probability above 0 and at most 1")
    full = float(np.sum(shares.client**2))
    if beta == 1:
        return ParticipationTerms(1.0, 1.0, full, 0.0)
    moving = weights = selection = 0.0
    for server, members in enumerate(shares.clusters.members):
        inside = shares.within[list(members)]
        share = shares.cluster[server]
        there = 1 - (1 - beta) ** len(members)
        second = share**2 * _mean_squared_weights(inside, beta)
        moving += share * there
        weights += second
        selection += second + (1 - 2 * there) * share**2 * float(np.sum(inside**2))
    return ParticipationTerms(beta, moving, weights, max(selection, 0.0))


def _mean_squared_weights(inside: NDArray[np.float64], beta: float) -> float:
    """E[sum_i w_i^2 / (sum_j w_j)^2] over those present, counting 0 if nobody is.

    With 1/x^2 = int_0^inf s exp(-s x) ds the expectation factorises over the clients:
    int s sum_i beta w_i^2 e^{-s w_i} prod_{j != i} (1 - beta + beta e^{-s w_j}) ds.
    """
    s = np.geomspace(1e-6, 60 / inside.min(), 4000)
    decay = np.exp(-np.outer(s, inside))
    factors = 1 - beta + beta * decay
    rest = np.prod(factors, axis=1, keepdims=True) / factors
    integrand = s * np.sum(beta * inside**2 * decay * rest, axis=1)
    return float(np.trapezoid(integrand, s))
