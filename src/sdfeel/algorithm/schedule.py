"""When servers aggregate: every tau1 iterations inside clusters, every tau1 tau2 between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import PlainValidator

from sdfeel.validation import checked, whole_number


def _length(value: Any) -> int | Callable[[int], int]:
    return value if callable(value) else whole_number(value)


Length = Annotated[int | Callable[[int], int], PlainValidator(_length)]


class Lengths(NamedTuple):
    """The numbers of a schedule in one round."""

    tau1: int
    tau2: int
    alpha: int

    @property
    def tau(self) -> int:
        """Iterations in a round: tau1 tau2."""
        return self.tau1 * self.tau2


@checked("schedule")
class Schedule:
    """The periods of Algorithm 1, for iterations k = 1, 2, ...

    Args:
        tau1: local updates between two intra-cluster aggregations.
        tau2: intra-cluster aggregations between two inter-cluster ones: a round has tau1 tau2
            iterations.
        alpha: exchanges in an inter-cluster aggregation.

    Each is a number or a function of the round, counted from 0. The defaults are those of the
    paper's figure 3.

    >>> sdfeel.Schedule(tau1=lambda number: 10 if number < 5 else 2, tau2=1, alpha=5).at(7)
    Lengths(tau1=2, tau2=1, alpha=5)
    """

    tau1: Length = 2
    tau2: Length = 1
    alpha: Length = 5

    @property
    def changes(self) -> bool:
        """Whether a number of the schedule is a function of the round."""
        return any(callable(value) for value in (self.tau1, self.tau2, self.alpha))

    def at(self, number: int) -> Lengths:
        """The numbers of a round, counted from 0."""
        lengths = []
        for name in ("tau1", "tau2", "alpha"):
            length = getattr(self, name)
            if callable(length):
                length = whole_number(length(number), field=f"schedule.{name}({number})")
            lengths.append(length)
        return Lengths(*lengths)

    @property
    def tau(self) -> int:
        """Iterations in a round, tau1 tau2; in the first one if that changes."""
        return self.at(0).tau
