"""An app's rounds: the upload periods of a schedule, counted from 1."""

from __future__ import annotations

from bisect import bisect_left

from sdfeel.algorithm.schedule import Schedule

__all__ = ["Rounds"]


class Rounds:
    """Which upload period an iteration belongs to, also where a schedule changes.

    >>> from sdfeel import Schedule
    >>> rounds = Rounds(Schedule(tau1=lambda number: 10 if number < 2 else 3, tau2=1))
    >>> rounds.last_iteration(3), rounds.number(23), rounds.number(24)
    (23, 3, 4)
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        # Of each round of the schedule that was asked for: what comes before it.
        self._periods, self._iterations = [0], [0]

    def last_iteration(self, number: int) -> int:
        """The iteration that upload period `number` ends with."""
        while self._periods[-1] < number:
            self._look_ahead()
        at = max(bisect_left(self._periods, number) - 1, 0)
        made = number - self._periods[at]
        return self._iterations[at] + made * self._schedule.at(at).tau1

    def number(self, k: int) -> int:
        """The upload period that iteration k belongs to."""
        while self._iterations[-1] < k:
            self._look_ahead()
        at = max(bisect_left(self._iterations, k) - 1, 0)
        made = k - self._iterations[at]
        return self._periods[at] + -(-made // self._schedule.at(at).tau1)

    def _look_ahead(self) -> None:
        lengths = self._schedule.at(len(self._periods) - 1)
        self._periods.append(self._periods[-1] + lengths.tau2)
        self._iterations.append(self._iterations[-1] + lengths.tau)
