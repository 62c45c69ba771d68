"""When servers aggregate: every tau1 iterations inside clusters, every tau1 tau2 between them."""

from __future__ import annotations

from dataclasses import dataclass

from sdfeel.errors import InputError

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """The periods of Algorithm 1, for iterations k = 1, 2, ...

    tau1   local updates between two intra-cluster aggregations
    tau2   intra-cluster aggregations between two inter-cluster ones
    alpha  exchanges in an inter-cluster aggregation

    By default those of the paper's figure 3.
    """

    tau1: int = 2
    tau2: int = 1
    alpha: int = 5

    def __post_init__(self) -> None:
        for name in ("tau1", "tau2", "alpha"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(name, value, "a whole number, at least 1")

    @property
    def tau(self) -> int:
        """Iterations in a round: tau1 tau2."""
        return self.tau1 * self.tau2

    def is_intra(self, k: int) -> bool:
        """Whether servers average their clients after iteration k (Algorithm 1, line 5)."""
        return k % self.tau1 == 0

    def is_inter(self, k: int) -> bool:
        """Whether they also exchange models with their neighbours (Algorithm 1, line 9)."""
        return k % self.tau == 0

    def next_intra(self, k: int) -> int:
        """The first intra-cluster aggregation after iteration k."""
        return (k // self.tau1 + 1) * self.tau1

    def period(self, k: int) -> int:
        """Number of the upload period that iteration k belongs to, from 0."""
        return (k - 1) // self.tau1
