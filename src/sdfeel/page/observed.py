"""What is known of a deployment's edges from looking at them: their facts, by our clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact

if TYPE_CHECKING:
    from sdfeel.deploy.operate.status import Look

__all__ = ["Observed", "Seen", "Silence", "Skew"]

MOST = 10_000  # facts of all edges, of which each may have as many as another
POINTS = 1_000  # of a measure, of all edges together
SPANS = 1_000  # of silence, or of a wrong clock
SKEWED = 30.0  # seconds by which a clock is wrong
# Facts of every day: several in a row are one.
DAILY = (facts.Period, facts.Deadline, facts.Exchange, facts.Missed, facts.UploadLate)


@dataclass(frozen=True)
class Seen:
    """A fact of an edge, with its time by our clock.

    life   another number each time that the edge is started
    count  how many facts it stands for
    until  the time of the last of them
    """

    time: float
    edge: str
    life: int
    fact: Fact
    count: int = 1
    until: float = 0.0


@dataclass
class Silence:
    """A span in which an edge did not answer; `ended` is None while it lasts.

    cause     "timeout", "nothing-listens", "unreachable" or "untrusted"
    is_first  it had never answered before
    """

    edge: str
    began: float
    cause: str
    is_first: bool
    ended: float | None = None


@dataclass
class Skew:
    """A span in which an edge's clock was so many seconds ahead of ours."""

    edge: str
    began: float
    ahead: float
    ended: float | None = None


@dataclass
class Observed:
    """Filled by one look after the other (`take`).

    edges   how many there are
    curves  by edge and measure, points of (iteration, value)
    changes counts what a story may depend on
    """

    edges: int = 1
    by_edge: dict[str, deque[Seen]] = field(default_factory=dict)
    silences: deque[Silence] = field(default_factory=lambda: deque(maxlen=SPANS))
    skews: deque[Skew] = field(default_factory=lambda: deque(maxlen=SPANS))
    curves: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)
    changes: int = 0
    _open: dict[str, Silence] = field(default_factory=dict)
    _skewed: dict[str, Skew] = field(default_factory=dict)
    _met: set[str] = field(default_factory=set)

    @property
    def seen(self) -> list[Seen]:
        """All facts by their time."""
        return sorted(chain(*self.by_edge.values()), key=lambda seen: seen.time)

    def take(self, look: Look, now: float) -> None:
        """Note an answer, or that there was none."""
        edge = look.row.name
        if look.row.problem:
            self._fall_silent(edge, look.row.cause, now)
            return
        self._met.add(edge)
        if edge in self._open:
            self._open.pop(edge).ended = now
            self.changes += 1
        if look.life:
            self._note_clock(edge, look.ahead, now)
        for note in look.facts:
            time = note.time - look.ahead
            seen = Seen(time, edge, look.life, note.fact, note.count, time)
            if isinstance(note.fact, facts.Measured | facts.ClientsMeasured):
                self._add_points(edge, note.fact.iteration, note.fact.values)
            else:
                self._add(seen)

    def _fall_silent(self, edge: str, cause: str, now: float) -> None:
        silence = self._open.get(edge)
        if silence is None:
            silence = Silence(edge, now, cause, is_first=edge not in self._met)
            self._open[edge] = silence
            self.silences.append(silence)
            self.changes += 1
        elif silence.cause != cause:
            silence.cause = cause
            self.changes += 1

    def _note_clock(self, edge: str, ahead: float, now: float) -> None:
        skew = self._skewed.get(edge)
        if abs(ahead) < SKEWED:
            if skew is not None:
                self._skewed.pop(edge).ended = now
                self.changes += 1
        elif skew is None:
            self._skewed[edge] = Skew(edge, now, ahead)
            self.skews.append(self._skewed[edge])
            self.changes += 1

    def _add(self, seen: Seen) -> None:
        facts_of_edge = self.by_edge.setdefault(seen.edge, deque(maxlen=MOST // self.edges))
        if not isinstance(seen.fact, DAILY):
            facts_of_edge.append(seen)
            self.changes += 1
            return
        for back, other in enumerate(reversed(facts_of_edge), start=1):
            if type(other.fact) is type(seen.fact) and other.life == seen.life:
                count = other.count + seen.count
                facts_of_edge[-back] = replace(seen, time=other.time, count=count)
                return
            if not isinstance(other.fact, DAILY):
                break
        facts_of_edge.append(seen)
        self.changes += 1

    def _add_points(self, edge: str, iteration: float, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            curve = self.curves.setdefault(edge, {}).setdefault(name, [])
            if curve and curve[-1][0] >= iteration:  # it was set back, or is evaluated again
                curve[:] = [point for point in curve if point[0] < iteration]
            curve.append((iteration, value))
            if len(curve) > max(20, POINTS // self.edges):
                del curve[1:-1:2]
