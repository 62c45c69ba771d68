"""The stream of facts of one node, and what an operator is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact

__all__ = ["Facts", "StatusFacts", "Tell"]

Tell = Callable[[Fact], None]


class Facts:
    """Pass what is told to the log, the metrics and whatever else follows, in this order."""

    def __init__(self, *followers: Tell) -> None:
        self._followers = [*followers]

    def tell(self, fact: Fact) -> None:
        for follower in self._followers:
            follower(fact)

    def follow(self, follower: Tell) -> None:
        """Pass facts to one more, from now on."""
        self._followers.append(follower)


@dataclass
class StatusFacts:
    """What `sdfeel status` shows of the facts of an edge in this life.

    refused  models of clients that were not valid
    late     models of clients that came when their period was over
    """

    refused: int = 0
    late: int = 0

    def add(self, fact: Fact) -> None:
        self.refused += isinstance(fact, facts.UploadRefused)
        self.late += isinstance(fact, facts.UploadLate)
