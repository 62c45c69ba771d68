"""kappa^2 at a model, split into what clusters hide and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sdfeel.network import Shares


@dataclass(frozen=True)
class KappaSplit:
    """Non-IIDness at one model, as weighted means over the clients; inside + between = total.

    inside    sum_i m_i ||grad F_i - grad F_d(i)||^2, with F_d the cluster's own loss
    between   sum_d m-tilde_d ||grad F_d - grad F||^2
    largest   max_i ||grad F_i - grad F||^2: the maximum that Assumption 1 speaks of, here
    """

    inside: float
    between: float
    largest: float

    @property
    def total(self) -> float:
        return self.inside + self.between


def kappa_split(gradients: NDArray[np.float64], shares: Shares) -> KappaSplit:
    """Split the non-IIDness of every client's full gradient at the same model, a row a client."""
    mean = shares.client @ gradients
    of_cluster = (shares.V.T @ gradients)[shares.clusters.server_of]
    inside = shares.client @ np.sum((gradients - of_cluster) ** 2, axis=1)
    between = shares.client @ np.sum((of_cluster - mean) ** 2, axis=1)
    largest = np.sum((gradients - mean) ** 2, axis=1).max()
    return KappaSplit(float(inside), float(between), float(largest))
