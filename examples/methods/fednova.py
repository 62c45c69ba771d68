"""FedNova (Wang et al., 2020): moves are brought to one length before they are averaged.

    w <- w(0) + (sum_i p_i a_i) sum_i p_i (w_i - w(0)) / a_i

a_i is by how much a constant gradient of 1 moves client i: for SGD the sum of its rates.
"""

from dataclasses import dataclass

from sdfeel import Method


@dataclass(frozen=True)
class FedNova(Method):
    needs = {"rounds", "clusters", "affine", "fresh", "servers"}
    breaks = {"mean"}

    def combine(self, models, shares, held, rows, period):
        reach = period.reach.astype(models.dtype)
        return held + (shares @ reach) * ((shares / reach) @ (models - held))
