"""Who is waited for: whoever answers, and less and less often whoever does not."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Absences"]

LONGEST = 10  # that somebody is not waited for: 2^10 periods


@dataclass
class Absences:
    """Who was waited for in vain twice or more is not for a while, longer each time."""

    _missed: dict[str, int] = field(default_factory=dict)
    _until: dict[str, int] = field(default_factory=dict)

    def missed(self, name: str, period: int) -> None:
        times = self._missed[name] = self._missed.get(name, 0) + 1
        if times > 1:
            self._until[name] = period + 2 ** min(times, LONGEST)

    def answered(self, name: str) -> None:
        self._missed.pop(name, None)
        self._until.pop(name, None)

    def is_waited_for(self, name: str, period: int) -> bool:
        return self._until.get(name, 0) < period
