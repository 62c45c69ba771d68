"""Spans of time in which something of a deployment was away: edges, links, clients."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from sdfeel.deploy.facts import facts
from sdfeel.page.observed import Seen, Silence

__all__ = ["SLACK", "UNSURE", "Outage", "Span", "away", "clusters", "cuts", "outages"]

SLACK = 3.0  # seconds by which two ends may notice the same thing apart
BRIEF = 0.1  # a stream that a newer one has replaced
BRIEF_CLIENT = 0.5
UNSURE = 2.0  # seconds without an answer, which nobody else has noticed, are a busy machine


@dataclass
class Span:
    """`about` was away from `first` to `last`, which is None while it lasts.

    seen  the facts that say so
    """

    about: tuple[str, ...]
    first: float
    last: float | None
    seen: list[Seen] = field(default_factory=list)

    @property
    def end(self) -> float:
        return math.inf if self.last is None else self.last

    def holds(self, time: float, before: float = SLACK, after: float = SLACK) -> bool:
        """Return whether a moment is in the span, or nearly."""
        return self.first - before <= time <= self.end + after


@dataclass
class Outage(Span):
    """An edge was away.

    cause   of the silence: see `Silence`
    lives   before and after, if another one has begun
    has_left it had said that it leaves
    """

    cause: str = ""
    lives: tuple[int, int] | None = None
    has_left: bool = False


# Edges.


def outages(seen: Sequence[Seen], silences: Iterable[Silence]) -> Iterator[Outage]:
    """Yield when each edge was away: it was silent, or another life of it has begun."""
    lives: dict[str, dict[int, list[Seen]]] = defaultdict(lambda: defaultdict(list))
    losses: dict[str, list[Seen]] = defaultdict(list)
    meetings: dict[str, float] = {}
    periods: dict[str, float] = {}
    for each in seen:
        lives[each.edge][each.life].append(each)
        if isinstance(each.fact, facts.Period):
            periods.setdefault(each.edge, each.time)
        if isinstance(each.fact, facts.LinkDown):
            losses[each.fact.peer].append(each)
        elif isinstance(each.fact, facts.LinkUp):
            meetings.setdefault(each.fact.peer, each.time)
    quiet: dict[str, list[Silence]] = defaultdict(list)
    for silence in silences:
        quiet[silence.edge].append(silence)
    for edge in sorted({*lives, *quiet}):
        left = quiet[edge]
        order = sorted(lives[edge].values(), key=lambda life: life[0].time)
        for before, after in pairwise(order):
            ended, begun = max(each.until for each in before), after[0].time
            during = [s for s in left if s.began - SLACK <= begun and _end(s) >= ended - SLACK]
            left = [s for s in left if s not in during]
            noticed = [each for each in losses[edge] if ended - SLACK <= each.time <= begun]
            first = min([s.began for s in during] + [e.time for e in noticed], default=ended)
            yield Outage(
                (edge,),
                first,
                begun,
                noticed,
                cause=during[-1].cause if during else "",
                lives=(before[0].life, after[0].life),
                has_left=_left(noticed),
            )
        for silence in left:
            outage = _silent(edge, silence, losses[edge], meetings.get(edge))
            is_starting = silence.began < periods.get(edge, math.inf) and silence.ended is not None
            if outage is not None and (outage.seen or not is_starting):
                yield outage


def _silent(
    edge: str, silence: Silence, losses: Sequence[Seen], met: float | None
) -> Outage | None:
    """Return the outage of an edge that was silent and is the same since, or is silent still."""
    first = silence.began
    noticed = [each for each in losses if first - SLACK <= each.time <= _end(silence)]
    if silence.is_first:
        # It has been there before we looked if a neighbour has met it and then lost it.
        before = [each for each in losses if met is not None and met <= each.time <= first]
        if silence.ended is not None or not before:
            return None
        noticed = before[-1:]
    if noticed:
        first = min(first, *(each.time for each in noticed))
    elif silence.ended is not None and silence.ended - first < UNSURE:
        return None
    left = _left(noticed)
    return Outage((edge,), first, silence.ended, noticed, cause=silence.cause, has_left=left)


def _left(noticed: Iterable[Seen]) -> bool:
    return any(isinstance(e.fact, facts.LinkDown) and e.fact.left for e in noticed)


def _end(silence: Silence) -> float:
    return math.inf if silence.ended is None else silence.ended


# Links and clients.


def cuts(seen: Iterable[Seen]) -> Iterator[Span]:
    """Yield when each link was down, as either end has it."""
    ends: dict[tuple[str, str], list[tuple[Seen, bool]]] = defaultdict(list)
    for each in seen:
        fact = each.fact
        if isinstance(fact, facts.LinkDown | facts.LinkUp):
            a, b = sorted((each.edge, fact.peer))
            ends[a, b].append((each, isinstance(fact, facts.LinkUp)))
    for pair, words in ends.items():
        yield from _joined(pair, words, BRIEF)


def away(seen: Iterable[Seen], home: str, client: str) -> Iterator[Span]:
    """Yield when a client was not at home, while its edge was there to say so."""
    words = [
        (each, isinstance(each.fact, facts.ClientUp))
        for each in seen
        if isinstance(each.fact, facts.ClientUp | facts.ClientDown)
        and (each.edge, each.fact.client) == (home, client)
    ]
    yield from _joined((client,), words, BRIEF_CLIENT)


def _joined(about: tuple[str, ...], words: list[tuple[Seen, bool]], brief: float) -> Iterator[Span]:
    """Yield spans from words that something went or came; two spans close together are one."""
    spans: list[Span] = []
    for each, is_back in words:
        span = spans[-1] if spans else None
        is_open = span is not None and span.last is None
        if is_back and span is not None:
            if is_open or each.time - span.end < SLACK:
                span.last = each.time
                span.seen.append(each)
        elif not is_back and span is not None and (is_open or each.time - span.end < SLACK):
            if not is_open:
                span.last = None
            span.seen.append(each)
        elif not is_back:
            spans.append(Span(about, each.time, None, [each]))
    for span in spans:
        if span.end - span.first >= brief:
            yield span


def clusters(spans: Iterable[Span], gap: float) -> list[Span]:
    """Join spans that follow each other by less than `gap`; `about` is that of the first."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        if joined and span.first - joined[-1].end < gap:
            last = joined[-1]
            last.last = None if last.last is None or span.last is None else max(last.end, span.end)
            last.seen += span.seen
        else:
            joined.append(Span(span.about, span.first, span.last, [*span.seen]))
    return joined
