"""How far models drift apart, exactly, with the two kinds of non-IIDness told apart.

Lemma 2 knows tau1 tau2 only. Take the gradients' differences as constant over the few iterations
between aggregations; then the deviation is a sum of three parts that the schedule treats
differently, each an age (a number of iterations) squared times a measured constant:

    E = eta^2 (kappa_in^2 S_in + kappa_between^2 S_between + sigma^2 S_noise).

S_in       an intra-cluster aggregation removes all of it: after f local updates the age is f,
           so S_in = mean of f^2 over f = 0 .. tau1-1.
S_between  only inter-cluster aggregation removes it, and only in part: an eigendirection of the
           averager with eigenvalue lambda keeps r = lambda (r + t), i.e. r = t lambda/(1-lambda),
           so S_between = mean over the eigendirections and over f = 0 .. t-1 of (r + f)^2.
S_noise    variances add up where drifts add up squared.

With curvature, an age does not grow beyond 1/(eta a): `decay` = eta a in every formula below,
0 for none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.network import Averager, Shares

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Ages:
    """Mean squared ages of the two drifts, and the noise's variance, in units of eta^2."""

    inside: float
    between: float
    noise: float

    def deviation(self, lr: float, inside: float, between: float, variance: float = 0.0) -> float:
        """E: the mean deviation sum_i m_i ||w_i - u||^2 for given kappa_in^2, kappa_between^2."""
        spread = inside * self.inside + between * self.between + variance * self.noise
        return lr**2 * spread


def disagreement_eigenvalues(averager: Averager) -> Array:
    """The D-1 eigenvalues of the averager's operator other than the 1 of the weighted mean."""
    root = np.sqrt(averager.shares)
    symmetric = averager.operator / root[:, None] * root[None, :]
    symmetric = (symmetric + symmetric.T) / 2 - np.outer(root, root)
    values = np.linalg.eigvalsh(symmetric)
    return np.delete(values, int(np.argmin(np.abs(values))))


def ages(
    tau1: int,
    tau2: int,
    eigenvalues: Array,
    shares: Shares | None = None,
    decay: float = 0.0,
    horizon: int | None = None,
) -> Ages:
    """The ages of a schedule whose averager has these eigenvalues of disagreement.

    Without `shares` the noise is counted as if every client were alone in its cluster. A run of
    `horizon` iterations that ends before its first exchange has only what grew until then.
    """
    period = tau1 * tau2
    last = period if horizon is None else min(period, horizon)
    inside = float(np.mean(_grown(np.arange(min(tau1, last)), decay) ** 2))
    path = _path(eigenvalues, period, last, decay)
    between = float(np.mean(path**2)) if len(eigenvalues) else 0.0
    return Ages(inside, between, _noise(tau1, tau2, eigenvalues, shares, decay))


def _noise(tau1: int, tau2: int, eigenvalues: Array, shares: Shares | None, decay: float) -> float:
    """Per unit of sigma^2: noise inside clusters since the last upload, and between them."""
    period = tau1 * tau2
    if shares is None:
        alone, averaged = 0.0, 1.0
    else:
        weights = shares.client * shares.within
        alone = 1 - float(np.sum(weights))
        averaged = float(np.sum(weights)) - float(np.sum(shares.client**2))
    squared = 1 - (1 - decay) ** 2
    inside = float(np.mean(_grown(np.arange(tau1), squared)))
    path = _path(eigenvalues**2, period, period, squared)
    between = float(np.mean(path)) if len(eigenvalues) else 0.0
    return alone * inside + averaged * between


def _path(eigenvalues: Array, period: int, last: int, decay: float) -> Array:
    """The age after 0 .. last-1 iterations, a row for each eigendirection: r + f without decay."""
    keeps = eigenvalues * (1 - decay) ** period
    residue = eigenvalues * _grown(np.array([period]), decay) / (1 - keeps) * (last == period)
    steps = np.arange(last)
    return np.asarray(residue[:, None] * (1 - decay) ** steps + _grown(steps, decay))


def _grown(steps: NDArray[np.int64], decay: float) -> Array:
    """1 + (1-decay) + ... : the age after `steps` iterations; `steps` itself without decay."""
    if decay <= 0:
        return steps.astype(float)
    return np.asarray((1 - (1 - decay) ** steps.astype(float)) / decay)
