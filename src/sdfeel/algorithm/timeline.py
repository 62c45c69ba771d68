"""A timeline: who computes, sends, collects, exchanges or waits, from when to when.

It follows from the stream of events alone, without any training. A server waits only for other
clusters; while its own clients work it collects. A client waits once its model is sent, until its
server's next one has come.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import SPANS, Event

Does = Literal["compute", "upload", "wait", "collect", "exchange"]
SIGNS: dict[Does, str] = {
    "compute": "#",
    "upload": ">",
    "wait": ".",
    "collect": "-",
    "exchange": "x",
}


@dataclass(frozen=True)
class Span:
    """A span of time in which a client or server does one thing."""

    who: str
    does: Does
    begin: float
    end: float


def timeline(algorithm: Algorithm, seconds: float) -> list[Span]:
    """Return the spans of all clients and servers that begin within so many seconds."""
    spans: list[Span] = []
    ends: dict[int, float] = {}
    groups = algorithm.network.clients if algorithm.pace.groups == "clients" else None
    groups = groups or algorithm.network.servers
    for event in algorithm.events():
        spans += _spans(algorithm, event)
        done = event.begun + sum(event.spans[name] for name in SPANS)
        ends |= {group.number: float(end) for group, end in zip(event.groups, done, strict=True)}
        if len(ends) == groups and min(ends.values()) >= seconds:
            break
    shown = [s for s in spans if s.end > s.begin and s.begin < seconds]
    return sorted(shown, key=lambda span: (_order(span.who), span.begin))


def waiting_share(spans: list[Span], kind: str) -> float:
    """The share of their time that all of a kind ("server" or "client") wait."""
    spans_of_kind = [span for span in spans if span.who.startswith(kind)]
    total = sum(span.end - span.begin for span in spans_of_kind)
    waited = sum(span.end - span.begin for span in spans_of_kind if span.does == "wait")
    return waited / total if total else 0.0


def as_text(spans: list[Span], seconds: float, columns: int = 60) -> list[str]:
    """Draw a line for each client and server; lines that are equal become one.

    A sign is what most of its part of the time went into. What is too short to be most of any part
    still has one sign, so that no exchange is lost.

    >>> from sdfeel.algorithm.timeline import Span, as_text
    >>> as_text([Span("client 0", "compute", 0, 1), Span("client 1", "compute", 0, 1)], 1, 5)
    ['client 0-1 #####']
    """
    drawn: dict[tuple[str, str], list[int]] = {}
    for name in dict.fromkeys(span.who for span in spans):
        number = _order(name)[1]
        line = _line([span for span in spans if span.who == name], seconds, columns)
        drawn.setdefault((name.partition(" ")[0], line), []).append(number)
    names = [f"{kind} {_ranges(numbers)}" for (kind, _), numbers in drawn.items()]
    width = max((len(name) for name in names), default=0)
    return [
        f"{name:<{width}} {line}".rstrip() for name, (_, line) in zip(names, drawn, strict=True)
    ]


def _line(spans: list[Span], seconds: float, columns: int) -> str:
    edges = np.linspace(0, seconds, columns + 1)
    share = np.zeros((len(SIGNS), columns))
    for span in spans:
        inside = np.minimum(span.end, edges[1:]) - np.maximum(span.begin, edges[:-1])
        share[list(SIGNS).index(span.does)] += np.maximum(inside, 0)
    most = np.where(share.any(axis=0), share.argmax(axis=0), -1)
    for span in spans:
        does = list(SIGNS).index(span.does)
        first, last = np.searchsorted(edges, (span.begin, span.end), side="right") - 1
        end = min(span.end, seconds)
        is_seen = (most[first : last + 1] == does).any() or end - span.begin <= 1e-9 * seconds
        if not is_seen:
            most[int((span.begin + end) / 2 / seconds * columns)] = does
    return "".join(" " if row < 0 else list(SIGNS.values())[row] for row in most)


def _ranges(numbers: list[int]) -> str:
    """Write sorted numbers as people do: 0-2,5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def _spans(algorithm: Algorithm, event: Event) -> Iterator[Span]:
    everyone = np.ones(algorithm.network.clients, dtype=bool)
    present = np.zeros_like(everyone)
    for group in event.groups:
        present[group.clients] = True
    is_star = algorithm.pace.groups == "clients"
    sending = algorithm.uplink.seconds(everyone if is_star else present)
    for at, group in enumerate(event.groups):
        begin = float(event.begun[at])
        length = {name: float(event.spans[name][at]) for name in SPANS}
        end = begin + sum(length.values())
        if not is_star:
            yield from _server(group.server, begin, length)
        members = [group.number] if is_star else algorithm.network.clusters.members[group.server]
        steps = dict(zip(group.clients.tolist(), group.last - group.first + 1, strict=True))
        for client in members:
            made = int(steps.get(client, 0))
            yield from _client(algorithm, client, begin, made, float(sending[client]), end)


def _server(number: int, begin: float, length: dict[str, float]) -> Iterator[Span]:
    who = f"server {number}"
    collected = begin + length["compute"] + length["upload"] + length["slack"]
    waited = collected + length["wait"]
    yield Span(who, "collect", begin, collected)
    yield Span(who, "wait", collected, waited)
    yield Span(who, "exchange", waited, waited + length["exchange"] + length["download"])


def _client(
    algorithm: Algorithm, number: int, begin: float, steps: int, sending: float, end: float
) -> Iterator[Span]:
    who = f"client {number}"
    computed = begin + steps * float(algorithm.uplink.latencies.t_cmp[number])
    sent = computed + (sending if steps else 0.0)
    yield Span(who, "compute", begin, computed)
    yield Span(who, "upload", computed, sent)
    yield Span(who, "wait", sent, max(end, sent))


def _order(who: str) -> tuple[str, int]:
    kind, _, number = who.partition(" ")
    return ("" if kind == "server" else kind), int(number)
