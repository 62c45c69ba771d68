"""How many steps a client makes in the time that its edge gives it, without rounds."""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

__all__ = ["StepBudget"]

REMEMBERED = 5
LEAST, LARGEST = 0.1, 0.8  # shares of the time that are kept for the upload


@dataclass
class StepBudget:
    """theta = floor((seconds left - reserve) / seconds a step), from 1 to `most`.

    The first time it is 1, to learn how long a step takes; later the median of the last few counts.
    `reserve` is the share of the time that is kept for the upload: doubled by whoever came late,
    and smaller again, bit by bit, with every model that was in time.
    """

    most: int
    reserve: float = LEAST
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def steps(self, seconds: float, left: float) -> int:
        """Of `seconds` in all so many are `left`."""
        if not self._steps:
            return 1
        seconds_per_step = statistics.median(self._steps)
        room = left - self.reserve * seconds
        # Who needs just as long is in time, whatever the last digits of a quotient say.
        steps = (
            math.floor(room / seconds_per_step * (1 + 1e-9) + 1e-9)
            if seconds_per_step > 0
            else self.most
        )
        return min(max(steps, 1), self.most)

    def took(self, steps: int, seconds: float) -> None:
        self._steps.append(seconds / steps)

    def was(self, in_time: bool) -> None:
        """What the edge said of the last model."""
        self.reserve = max(LEAST, 0.9 * self.reserve) if in_time else min(LARGEST, 2 * self.reserve)
