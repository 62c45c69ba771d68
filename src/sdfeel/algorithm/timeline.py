"""A timeline: who computes, sends, collects, exchanges or waits, from when to when.

It follows from the algorithm's clock alone, without any training. A server waits only where it does
so for another cluster; while its own clients work it collects. A client waits once its model is
sent, until its server's next one has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.pace import TurnPace

__all__ = ["SIGNS", "Does", "Span", "as_text", "timeline", "waiting_share"]

Does = Literal["computes", "sends", "waits", "collects", "exchanges"]
SIGNS: dict[Does, str] = {
    "computes": "#",
    "sends": ">",
    "waits": ".",
    "collects": "-",
    "exchanges": "x",
}


@dataclass(frozen=True)
class Span:
    """What a client or server does, for how long."""

    who: str
    does: Does
    begin: float
    end: float


def timeline(algorithm: Algorithm, seconds: float) -> list[Span]:
    """Everybody's spans that begin within so many seconds."""
    made = _by_turns if isinstance(algorithm.pace, TurnPace) else _by_rounds
    spans = [s for s in made(algorithm, seconds) if s.end > s.begin and s.begin < seconds]
    return sorted(spans, key=lambda span: (_order(span.who), span.begin))


def waiting_share(spans: list[Span], kind: str) -> float:
    """The share of their time that all of a kind ("server" or "client") wait."""
    own = [span for span in spans if span.who.startswith(kind)]
    total = sum(span.end - span.begin for span in own)
    return sum(s.end - s.begin for s in own if s.does == "waits") / total if total else 0.0


def as_text(spans: list[Span], seconds: float, columns: int = 60) -> list[str]:
    """A line for each client and server; a sign is what most of its part of the time went into."""
    lines = []
    names = list(dict.fromkeys(span.who for span in spans))
    width = max((len(name) for name in names), default=0)
    for name in names:
        share = np.zeros((len(SIGNS), columns))
        for span in (span for span in spans if span.who == name):
            edges = np.linspace(0, seconds, columns + 1)
            inside = np.minimum(span.end, edges[1:]) - np.maximum(span.begin, edges[:-1])
            share[list(SIGNS).index(span.does)] += np.maximum(inside, 0)
        most = [int(column.argmax()) if column.any() else -1 for column in share.T]
        signs = [" " if row < 0 else list(SIGNS.values())[row] for row in most]
        lines.append(f"{name:<{width}} {''.join(signs)}".rstrip())
    return lines


def _by_rounds(algorithm: Algorithm, seconds: float) -> Iterator[Span]:
    clock, k = algorithm.clock(), 1
    while clock.at.min() < seconds:
        begin = clock.at.copy()
        event = algorithm.rounds.next(k, algorithm, begin)
        clock.local_updates(event.last - event.first + 1)
        waited = clock.waited.copy()
        aside = replace(clock)  # the same upload without what follows it
        aside.at, aside.steps = clock.at.copy(), clock.steps
        algorithm.rounds.end(replace(event, mixing=None), aside)
        algorithm.end(event, clock)
        for d in range(algorithm.network.servers):
            idle = float(clock.waited[d] - waited[d])
            yield from _server(d, begin[d], aside.at[d], idle, clock.at[d])
        sending = algorithm.uplink.seconds(event.clients)
        steps = np.where(event.clients, event.last - event.first + 1, 0)
        server_of = algorithm.network.clusters.server_of
        for i, d in enumerate(server_of):
            yield from _client(algorithm, i, begin[d], int(steps[i]), sending[i], clock.at[d])
        k = event.last + 1


def _by_turns(algorithm: Algorithm, seconds: float) -> Iterator[Span]:
    assert isinstance(algorithm.pace, TurnPace)  # noqa: S101 - `timeline` asked
    agenda = algorithm.pace.agenda(algorithm)
    sending = algorithm.uplink.seconds(np.ones(algorithm.network.clients, dtype=bool))
    star = len(agenda.groups) != algorithm.network.servers
    while agenda.begun.min() < seconds:
        turns, after = agenda.window(2**60, 2**60, np.inf)
        for turn in turns:
            begin, end = agenda.begun[turn.group], after.begun[turn.group]
            if not star:
                yield from _server(turn.server, begin, turn.at, 0.0, end)
            made = dict(zip(turn.part.clients, turn.part.last - turn.part.first + 1, strict=True))
            for i in agenda.groups[turn.group]:
                yield from _client(algorithm, int(i), begin, int(made.get(i, 0)), sending[i], end)
        agenda = after


def _server(number: int, begin: float, collected: float, idle: float, end: float) -> Iterator[Span]:
    who = f"server {number}"
    yield Span(who, "collects", begin, collected)
    yield Span(who, "waits", collected, collected + idle)
    yield Span(who, "exchanges", collected + idle, end)


def _client(
    algorithm: Algorithm, number: int, begin: float, steps: int, sending: float, end: float
) -> Iterator[Span]:
    who = f"client {number}"
    computed = begin + steps * float(algorithm.uplink.latencies.t_cmp[number])
    sent = computed + (sending if steps else 0.0)
    yield Span(who, "computes", begin, computed)
    yield Span(who, "sends", computed, sent)
    yield Span(who, "waits", sent, max(end, sent))


def _order(who: str) -> tuple[str, int]:
    kind, _, number = who.partition(" ")
    return ("" if kind == "server" else kind), int(number)
