"""Two processes with one client's name would push each other out for ever: the older is told."""

from __future__ import annotations

from sdfeel.deploy.model.wire import Refused

__all__ = ["Namesakes"]

REMEMBERED = 8


class Namesakes:
    """Which processes came with a name, by the number that each drew at its start.

    A newer process takes the place of an older one, whose stream may be dead without anybody
    knowing. Should the older one come back while the newer is there, both are alive: it is refused.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[int]] = {}

    def admit(self, name: str, incarnation: int, is_there: bool) -> bool:
        """Whether it takes the place of another process; Refused if it was itself replaced."""
        seen = self._seen.setdefault(name, [])
        if not incarnation or (seen and seen[-1] == incarnation):
            return False
        if is_there and incarnation in seen:
            raise Refused("twice", f"another process uses the name {name!r}, and came later")
        if incarnation in seen:
            seen.remove(incarnation)
        seen.append(incarnation)
        del seen[:-REMEMBERED]
        return is_there
