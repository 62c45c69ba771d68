"""How often something may happen: so many times at once, and then so many in a second."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["TokenBucket"]


@dataclass
class TokenBucket:
    """Tokens that come back with time; everything that happens costs some.

    seconds  in which one token comes back
    most     tokens that it holds, and begins with
    debt     tokens that may be owed
    """

    seconds: float
    most: float = 2.0
    debt: float = math.inf
    left: float = field(init=False)
    _at: float | None = None

    def __post_init__(self) -> None:
        self.left = self.most

    def take(self, now: float) -> bool:
        """Take a token; False, and nothing taken, if there is none."""
        self._fill(now)
        if self.left < 1:
            return False
        self.left -= 1
        return True

    def charge(self, now: float, cost: float = 1.0) -> float:
        """Take tokens also where there are none; return the seconds until the debt is paid."""
        self._fill(now)
        self.left = max(self.left - cost, -self.debt)
        return max(0.0, -self.left * self.seconds)

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self.left = min(self.most, self.left + max(0.0, now - self._at) / self.seconds)
        self._at = now
