"""What happened in a deployment, from one look at its edges to the next, each with its cause."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdfeel.deploy.operate.status import EdgeStatus

__all__ = ["Events", "Incident"]

KEPT = 500
# An edge stalls when a period takes this many times as long as its last one, and so many seconds.
TIMES, AT_LEAST = 5.0, 1.0


@dataclass
class Incident:
    """Something that began, and has ended or not.

    what    in words: "south lost north"
    cause   why, as far as it can be seen
    began   seconds since 1970; ended: None while it lasts, `began` for what has no length
    """

    number: int
    edge: str
    what: str
    cause: str
    began: float
    ended: float | None = None
    back: str = "back"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Events:
    """The list, newest last; what lasts is found again by its key.

    homes  the clients that belong to each edge, by the deployment file
    """

    homes: Mapping[str, Sequence[str]]
    now: Callable[[], float] = time.time
    list: deque[Incident] = field(default_factory=lambda: deque(maxlen=KEPT))
    _open: dict[tuple[str, ...], Incident] = field(default_factory=dict)
    _last: dict[str, EdgeStatus] = field(default_factory=dict)
    _moved: dict[str, float] = field(default_factory=dict)
    _met: set[tuple[str, str]] = field(default_factory=set)  # edge, and a peer or client of it
    _as_lost: dict[tuple[str, str], EdgeStatus] = field(default_factory=dict)
    _number: int = 0

    def take(self, rows: Sequence[EdgeStatus]) -> None:
        """One look at all edges."""
        lasting = {key: words for row in rows for key, words in self._lasting(row, rows)}
        for key, (what, cause, back) in lasting.items():
            if key not in self._open:
                self._open[key] = self._add(key[1], what, cause, back)
            elif cause and not self._open[key].cause.startswith(cause):
                self._open[key].cause = cause
        for key in [key for key in self._open if key not in lasting]:
            self._open.pop(key).ended = self.now()
        for row in rows:
            if not row.problem:
                self._at_once(row)
                self._last[row.name] = row

    def _add(self, edge: str, what: str, cause: str, back: str) -> Incident:
        self._number += 1
        event = Incident(self._number, edge, what, cause, self.now(), back=back)
        self.list.append(event)
        return event

    def _lasting(
        self, row: EdgeStatus, rows: Sequence[EdgeStatus]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, str, str]]]:
        """What is not as it should be with one edge: key, then words, cause and end."""
        edge = row.name
        if row.problem:
            what, back = f"{edge} does not answer", "answers"
            if edge in self._last:
                what, back = f"{edge} stopped answering", "answers again"
            yield ("silent", edge), (what, _why_silent(row.problem), back)
            return
        if row.phase == "finished":
            return
        others = {other.name: other for other in rows}
        for peer, state in row.links.items():
            yield from self._link(edge, peer, state, others.get(peer))
        if edge in self._last or row.period > 0:
            yield from self._clients(row, rows)
        for warning in row.warnings:
            # A warning may count hours: it is the same one while only its numbers change.
            kind = re.sub(r"[0-9.]+", "#", warning)
            yield ("warning", edge, kind), (f"{edge} warns", warning, "over")
        stalled = self._stalled(row)
        if stalled:
            what = f"{edge} stalls in period {row.period + 1}, {row.phase}"
            yield ("stall", edge), (what, self._why_stalled(row, others), "goes on")

    def _link(
        self, edge: str, peer: str, state: str, other: EdgeStatus | None
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, str, str]]]:
        if state.startswith("up"):
            self._met.add((edge, peer))
            self._as_lost.pop((edge, peer), None)
            return
        # Whoever does not answer may still look well in an answer of before the loss.
        is_old = other is self._as_lost.setdefault((edge, peer), other) if other else False
        cause = f"{peer} is asked whether it is there"
        if other is None or other.problem or not is_old:
            cause = _why_lost(other)
        if (edge, peer) in self._met or state != "down 0+0":
            yield ("link", edge, peer), (f"{edge} lost {peer}", cause, "back")
        elif other is None or not other.problem or peer in self._last:
            yield ("link", edge, peer), (f"{edge} has no link to {peer}", cause, "met")

    def _clients(
        self, row: EdgeStatus, rows: Sequence[EdgeStatus]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, str, str]]]:
        edge = row.name
        self._met |= {(edge, client) for client in row.clients}
        for client in self.homes.get(edge, ()):
            if client in row.clients:
                continue
            guest = [o.name for o in rows if client in o.clients]
            where = f"it is a guest of {guest[0]}" if guest else ""
            if (edge, client) in self._met:
                cause = where or "its stream has ended"
                yield ("client", edge, client), (f"{client} left {edge}", cause, "back")
            else:
                cause = where or "it has not come since this page began to look"
                yield ("client", edge, client), (f"{client} is not at {edge}", cause, "came")

    def _stalled(self, row: EdgeStatus) -> bool:
        before = self._last.get(row.name)
        is_back = ("silent", row.name) in self._open  # it has its time again
        if before is None or before.period != row.period or is_back:
            self._moved[row.name] = self.now()
            return False
        if not row.seconds_per_period and row.phase != "paused":
            return False  # its first period: nobody knows how long one takes
        limit = max(AT_LEAST, TIMES * row.seconds_per_period)
        return self.now() - self._moved[row.name] > limit

    def _why_stalled(self, row: EdgeStatus, others: Mapping[str, EdgeStatus]) -> str:
        if row.phase == "paused":
            return "; ".join(row.warnings) or "its disk takes no checkpoint"
        down = [peer for peer, state in row.links.items() if not state.startswith("up")]
        if row.phase == "exchanging" and down:
            return f"waits for {', '.join(down)}: {_why_lost(others.get(down[0]))}"
        if row.phase == "exchanging":
            behind = [o.name for o in others.values() if o.name in row.links]
            late = [n for n in behind if others[n].period <= row.period]
            return f"waits for {', '.join(late or behind)}, whose models have not come"
        away = [c for c in self.homes.get(row.name, ()) if c not in row.clients]
        if not row.clients:
            return f"none of its {row.expected} clients is there"
        if away:
            return f"waits for {', '.join(away)}, not there"
        return "waits for the models of its clients"

    def _at_once(self, row: EdgeStatus) -> None:
        """What has no length: uploads refused or late, the end."""
        before = self._last.get(row.name)
        if before is None:
            return
        said = []
        if row.refused > before.refused:
            said.append((f"{row.name} refused {row.refused - before.refused} upload(s)",
                         "not a valid model; its log has the reason"))  # fmt: skip
        if row.late > before.late:
            said.append((f"{row.late - before.late} upload(s) came late to {row.name}",
                         "the period was over"))  # fmt: skip
        if row.phase == "finished" and before.phase != "finished":
            said.append((f"{row.name} finished", f"all {row.periods} periods are done"))
        for what, cause in said:
            event = self._add(row.name, what, cause, "")
            event.ended = event.began


def _why_lost(peer: EdgeStatus | None) -> str:
    if peer is None:
        return "it is not in the deployment file"
    if peer.problem:
        return f"{peer.name} does not answer: {_why_silent(peer.problem)}"
    if peer.phase == "finished":
        return f"{peer.name} has finished"
    return f"{peer.name} answers us: the way between the two is cut"


def _why_silent(problem: str) -> str:
    """In words, with what gRPC says."""
    if problem.startswith("DEADLINE_EXCEEDED"):
        return f"it is frozen, overloaded or cut off ({problem})"
    if "Connection refused" in problem:
        return f"nothing listens at its address ({problem})"
    return problem
