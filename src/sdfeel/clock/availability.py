"""Availability: when each device is on. An absent device does nothing; its server goes on.

    [availability]
    trace = "devices.csv"                                  lines `client,from,to`, in seconds
    trace = [[0, 0.0, 60.0], ...]                          the same without a file
    law = "exponential", on = 60.0, off = 20.0             mean seconds on and off, in turn
    law = "diurnal", period = 86400.0, share = 0.5         on for a share of every period

A trace begins anew when its last `to` is reached. What is drawn is a function of (seed, client):
an exponential device begins on with probability on / (on + off); a diurnal one has a phase.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock.devices import numbers_of
from sdfeel.errors import InputError, closest

__all__ = ["Availability", "Presence", "read_trace"]

LAWS = {"exponential": ("on", "off"), "diurnal": ("period", "share")}
PURPOSE = 2**32  # of numbers drawn here: this and the client's number
CHUNK = 64  # spans of a device that are drawn at a time
MAX_BYTES = 256 * 2**20

Span = tuple[int, float, float]  # client, from, to


@dataclass(frozen=True)
class Availability:
    """Spans in which devices are on, or the law by which they are drawn."""

    trace: tuple[Span, ...] = ()
    law: str = ""
    on: float = 0.0
    off: float = 0.0
    period: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if bool(self.trace) == bool(self.law):
            raise InputError("availability", self.law, "a trace, or a law: one of the two")
        if self.trace:
            _check_spans(self.trace)
            return
        if self.law not in LAWS:
            raise InputError("availability.law", self.law, closest(self.law, LAWS))
        for name in LAWS[self.law]:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"availability.{name}", value, "a finite number above 0")
        if self.share > 1:
            raise InputError("availability.share", self.share, "a share of the period, at most 1")

    @classmethod
    def of_table(cls, table: Mapping[str, Any], folder: Path) -> Availability:
        """From the table `[availability]` of a profile that lies in `folder`."""
        law = table.get("law", "")
        if "trace" not in table and law not in LAWS:
            raise InputError("availability.law", law, closest(str(law), LAWS))
        known = ["trace"] if "trace" in table else ["law", *LAWS[law]]
        for key, value in table.items():
            if key not in known:
                remedy = f"unknown key here; {closest(key, known)}"
                raise InputError(f"availability.{key}", value, remedy)
        if "trace" in table:
            if isinstance(table["trace"], list):
                return cls(trace=tuple(_listed(own) for own in table["trace"]))
            if not isinstance(table["trace"], str):
                raise InputError("availability.trace", table["trace"], "the path of a CSV file")
            return cls(trace=read_trace(folder / table["trace"]))
        numbers: dict[str, Any] = {}
        for name in LAWS[law]:
            value = table.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"availability.{name}", value, f"{law} needs it: a number")
            numbers[name] = float(value)
        return cls(law=law, **numbers)

    def draw(self, clients: int, seed: int) -> Presence:
        """When each of `clients` clients is on."""
        if self.trace:
            self._check_clients(clients)
        return Presence(self, clients, seed)

    def _check_clients(self, clients: int) -> None:
        for client, begin, end in self.trace:
            if not 0 <= client < clients:
                raise InputError(
                    "availability.trace",
                    f"{client},{begin:g},{end:g}",
                    f"there is no such client: they are 0 to {clients - 1}",
                )
        gaps = sorted(set(range(clients)) - {client for client, _, _ in self.trace})
        if gaps:
            raise InputError(
                "availability.trace",
                f"client {gaps[0]}",
                f"{len(gaps)} of {clients} clients have no line: a device that is never on cannot "
                "take part",
            )


def read_trace(path: Path) -> tuple[Span, ...]:
    """Lines `client,from,to` under that heading."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError("availability.trace", str(path), f"larger than {MAX_BYTES} bytes")
        lines = list(csv.reader(path.read_text("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError("availability.trace", str(path), f"cannot be read: {problem}") from None
    if not lines or [cell.strip() for cell in lines[0]] != ["client", "from", "to"]:
        raise InputError("availability.trace", str(path), "its first line must be client,from,to")
    spans = [_span(path, number, cells) for number, cells in enumerate(lines[1:], 2) if cells]
    if not spans:
        raise InputError("availability.trace", str(path), "no device is ever on")
    return tuple(spans)


def _span(path: Path, number: int, cells: list[str]) -> Span:
    try:
        client, begin, end = cells
        return int(client), float(begin), float(end)
    except ValueError:
        found, where = ",".join(cells), f"{path.name}, line {number}"
        remedy = f"{where}: three numbers, client,from,to"
        raise InputError("availability.trace", found, remedy) from None


def _listed(own: Any) -> Span:
    three: list[Any] = own if isinstance(own, list) and len(own) == 3 else [None]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in three):
        raise InputError("availability.trace", own, "three numbers: client, from, to")
    return int(three[0]), float(three[1]), float(three[2])


def _check_spans(trace: tuple[Span, ...]) -> None:
    for client, begin, end in trace:
        if not (0 <= begin < end < math.inf):
            remedy = "from 0 or later, to a later second"
            raise InputError("availability.trace", f"{client},{begin:g},{end:g}", remedy)
    for one, two in pairwise(sorted(trace)):
        if one[0] == two[0] and two[1] < one[2]:
            raise InputError(
                "availability.trace",
                f"{two[0]},{two[1]:g},{two[2]:g}",
                f"overlaps with {one[0]},{one[1]:g},{one[2]:g}: a device is on once at a time",
            )


class Presence:
    """When each client is on, as far as anybody asked: it is drawn on the way."""

    def __init__(self, availability: Availability, clients: int, seed: int) -> None:
        self._law, self._seed = availability, seed
        self._length = max((end for _, _, end in availability.trace), default=availability.period)
        self._spans: list[list[tuple[float, float]]] = [[] for _ in range(clients)]
        self._drawn = [0] * clients
        for client, begin, end in sorted(availability.trace):
            own = self._spans[client]
            if own and own[-1][1] == begin:
                own[-1] = (own[-1][0], end)
            else:
                own.append((begin, end))
        if availability.law == "diurnal":
            phases = numbers_of(seed, PURPOSE - 1, clients) * self._length
            for client, phase in enumerate(phases):
                self._spans[client] = self._day(float(phase), availability.share * self._length)

    def stay(
        self, clients: NDArray[np.int64], begin: NDArray[np.float64], seconds: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Who of them is on at `begin`, and still is `seconds` later."""
        asked = zip(clients, begin, seconds, strict=True)
        return np.array([self.off(int(c), float(b)) >= b + s for c, b, s in asked], dtype=bool)

    def share(self, client: int, seconds: float) -> float:
        """The share of time that a client is on: of a whole turn, or of the first `seconds`."""
        if self._law.law == "exponential":
            self._draw_until(client, seconds)
        else:
            seconds = self._length
        spans = self._spans[client]
        return sum(max(min(end, seconds) - begin, 0.0) for begin, end in spans) / seconds

    def off(self, client: int, at: float) -> float:
        """When a client that is on at this time goes off; minus infinity where it is off."""
        if self._law.law == "exponential":
            self._draw_until(client, at)
            return self._end(client, at)
        turn, left = divmod(at, self._length)
        end = self._end(client, left)
        if end < self._length:
            return turn * self._length + end
        first = self._spans[client][0]
        if first == (0.0, self._length):
            return math.inf
        return (turn + 1) * self._length + (first[1] if first[0] == 0 else 0.0)

    def _end(self, client: int, at: float) -> float:
        spans = self._spans[client]
        place = bisect_right(spans, (at, math.inf)) - 1
        return spans[place][1] if place >= 0 and at < spans[place][1] else -math.inf

    def _day(self, phase: float, on: float) -> list[tuple[float, float]]:
        end = phase + on
        if on >= self._length:
            return [(0.0, self._length)]
        if end <= self._length:
            return [(phase, end)]
        return [(0.0, end - self._length), (phase, self._length)]

    def _draw_until(self, client: int, at: float) -> None:
        """Spans that reach beyond `at`: the same ones, however often and far anybody asks."""
        spans, law = self._spans[client], self._law
        while not spans or spans[-1][1] <= at:
            self._drawn[client] += CHUNK
            u = numbers_of(self._seed, PURPOSE + client, 1 + 2 * self._drawn[client])
            lengths = -np.log1p(-u[1:].reshape(-1, 2)) * [law.off, law.on]
            if u[0] < law.on / (law.on + law.off):
                lengths[0, 0] = 0.0
            ends = np.cumsum(lengths.reshape(-1)).reshape(-1, 2)
            spans[:] = [(float(begin), float(end)) for begin, end in ends]
