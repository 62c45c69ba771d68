"""How often a neighbour may ask for a swap: not more often than its own time lets it be ready.

Every swap pulls us towards the neighbour's model. In rounds there is one a round; without them an
edge that lies could ask all the time, and make its model everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TokenBucket"]

AT_ONCE = 2.0  # swaps that may have been held up on their way and come together
SLACK = 0.9  # of the time between two: clocks differ


@dataclass
class TokenBucket:
    """Of one neighbour. `seconds`: the least between two of its swaps."""

    seconds: float
    left: float = AT_ONCE
    _at: float | None = None

    def take(self, now: float) -> bool:
        """Whether it may have one now."""
        if self._at is not None:
            gained = (now - self._at) / (SLACK * self.seconds)
            self.left = min(AT_ONCE, self.left + gained)
        self._at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True
