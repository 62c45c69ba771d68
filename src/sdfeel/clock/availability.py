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
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from sdfeel.clock.devices import uniform
from sdfeel.errors import InputError
from sdfeel.tables import from_table, to_table
from sdfeel.toml import refuse_special
from sdfeel.validation import Positive, Share, checked

PURPOSE = 2**32  # of numbers drawn here: this and the client's number
CHUNK = 64  # spans of a device that are drawn at a time
MAX_BYTES = 256 * 2**20

Entry = tuple[int, float, float]  # client, from, to
Spans = list[tuple[float, float]]


class Presence(ABC):
    """The spans in which each client is on."""

    @abstractmethod
    def off(self, client: int, at: float) -> float:
        """Return when a client that is on at this time goes off; minus infinity where it is off."""

    @abstractmethod
    def share(self, client: int, seconds: float) -> float:
        """The share of time that a client is on: of a whole turn, or of the first `seconds`."""

    def stay(
        self, clients: NDArray[np.int64], begin: NDArray[np.float64], seconds: NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Return which clients are on at `begin`, and still are `seconds` later."""
        stays = zip(clients, begin, seconds, strict=True)
        return np.array([self.off(int(c), float(b)) >= b + s for c, b, s in stays], dtype=bool)


class _InTurns(Presence):
    """A presence that repeats the same spans."""

    def __init__(self, spans: list[Spans], length: float) -> None:
        self._spans, self._length = spans, length

    def share(self, client: int, seconds: float) -> float:  # noqa: ARG002
        return sum(end - begin for begin, end in self._spans[client]) / self._length

    def off(self, client: int, at: float) -> float:
        turn, left = divmod(at, self._length)
        end = _end(self._spans[client], left)
        if end < self._length:
            return turn * self._length + end
        first = self._spans[client][0]
        if first == (0.0, self._length):
            return math.inf
        return (turn + 1) * self._length + (first[1] if first[0] == 0 else 0.0)


class _Drawn(Presence):
    """Exponential spans, drawn as far as anybody asks."""

    def __init__(self, law: Exponential, clients: int, seed: int) -> None:
        self._law, self._seed = law, seed
        self._spans: list[Spans] = [[] for _ in range(clients)]
        self._count = [0] * clients

    def share(self, client: int, seconds: float) -> float:
        spans = self._until(client, seconds)
        return sum(max(min(end, seconds) - begin, 0.0) for begin, end in spans) / seconds

    def off(self, client: int, at: float) -> float:
        return _end(self._until(client, at), at)

    def _until(self, client: int, at: float) -> Spans:
        """Spans that reach beyond `at`: the same ones, however often and far anybody asks."""
        spans, law = self._spans[client], self._law
        while not spans or spans[-1][1] <= at:
            self._count[client] += CHUNK
            u = uniform(self._seed, PURPOSE + client, 1 + 2 * self._count[client])
            lengths = -np.log1p(-u[1:].reshape(-1, 2)) * [law.off, law.on]
            if u[0] < law.on / (law.on + law.off):
                lengths[0, 0] = 0.0
            ends = np.cumsum(lengths.reshape(-1)).reshape(-1, 2)
            spans[:] = [(float(begin), float(end)) for begin, end in ends]
        return spans


def _end(spans: Spans, at: float) -> float:
    place = bisect_right(spans, (at, math.inf)) - 1
    return spans[place][1] if place >= 0 and at < spans[place][1] else -math.inf


@checked("availability")
class Exponential:
    """A law by which devices go on and off in turn, for exponential times."""

    on: Positive
    off: Positive

    def draw(self, clients: int, seed: int) -> Presence:
        """Return when each of `clients` clients is on."""
        return _Drawn(self, clients, seed)


@checked("availability")
class Diurnal:
    """A law by which devices are on once in every period, each from another time of day."""

    period: Positive
    share: Share

    def draw(self, clients: int, seed: int) -> Presence:
        phases = uniform(seed, PURPOSE - 1, clients) * self.period
        return _InTurns([self._day(float(phase)) for phase in phases], self.period)

    def _day(self, phase: float) -> Spans:
        on = self.share * self.period
        end = phase + on
        if on >= self.period:
            return [(0.0, self.period)]
        if end <= self.period:
            return [(phase, end)]
        return [(0.0, end - self.period), (phase, self.period)]


def _trace(value: Any) -> tuple[Entry, ...]:
    if isinstance(value, str | Path):
        return _read_trace(Path(value))
    if not isinstance(value, list | tuple):
        raise InputError("availability.trace", value, "the path of a CSV file, or its numbers")
    return tuple(_entry(row) for row in value)


def _entry(row: Any) -> Entry:
    three: Any = row if isinstance(row, list | tuple) and len(row) == 3 else [None]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in three):
        raise InputError("availability.trace", row, "three numbers: client, from, to")
    return int(three[0]), float(three[1]), float(three[2])


@checked("availability")
class Trace:
    """Spans in which devices are on."""

    trace: Annotated[tuple[Entry, ...], PlainValidator(_trace)]

    def __post_init__(self) -> None:
        if not self.trace:
            raise InputError("availability.trace", [], "no device is ever on")
        for client, begin, end in self.trace:
            if not 0 <= begin < end < math.inf:
                remedy = "from 0 or later, to a later second"
                raise InputError("availability.trace", _line(client, begin, end), remedy)
        for first, second in pairwise(sorted(self.trace)):
            if first[0] == second[0] and second[1] < first[2]:
                remedy = f"overlaps with {_line(*first)}: a device is on once at a time"
                raise InputError("availability.trace", _line(*second), remedy)

    def draw(self, clients: int, seed: int) -> Presence:  # noqa: ARG002
        spans: list[Spans] = [[] for _ in range(clients)]
        for client, begin, end in sorted(self.trace):
            if not 0 <= client < clients:
                remedy = f"there is no such client: they are 0 to {clients - 1}"
                raise InputError("availability.trace", _line(client, begin, end), remedy)
            earlier = spans[client]
            touches = bool(earlier) and earlier[-1][1] == begin  # spans that touch are one
            earlier.append((earlier.pop()[0] if touches else begin, end))
        never = [client for client, on in enumerate(spans) if not on]
        if never:
            raise InputError(
                "availability.trace",
                f"client {never[0]}",
                f"{len(never)} of {clients} clients have no line: a device that is never on "
                "cannot take part",
            )
        return _InTurns(spans, max(end for _, _, end in self.trace))


Availability = Trace | Exponential | Diurnal
LAWS: dict[str, type] = {"exponential": Exponential, "diurnal": Diurnal}


def availability_of(value: Any) -> Availability | None:
    """The table `[availability]` of a profile, or an object."""
    if value is None or isinstance(value, Availability):
        return value
    if not isinstance(value, Mapping):
        raise InputError("availability", value, "a table with a trace or a law")
    if "trace" in value:
        for key in value.keys() - {"trace"}:
            raise InputError(f"availability.{key}", value[key], "a trace, or a law: one of the two")
        return Trace(value["trace"])
    law: Availability = from_table("availability", value, LAWS, key="law")
    return law


def table_of(availability: Availability) -> dict[str, Any]:
    """Return the table of a law, as a profile's file has it."""
    if isinstance(availability, Trace):
        return {"trace": [list(entry) for entry in availability.trace]}
    return to_table(availability, LAWS, key="law")


def _line(client: int, begin: float, end: float) -> str:
    return f"{client},{begin:g},{end:g}"


def _read_trace(path: Path) -> tuple[Entry, ...]:
    """Lines `client,from,to` under that heading."""
    try:
        refuse_special(path, "availability.trace")
        if path.stat().st_size > MAX_BYTES:
            raise InputError("availability.trace", str(path), f"larger than {MAX_BYTES} bytes")
        lines = list(csv.reader(path.read_text("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise InputError("availability.trace", str(path), f"cannot be read: {problem}") from None
    if not lines or [cell.strip() for cell in lines[0]] != ["client", "from", "to"]:
        raise InputError("availability.trace", str(path), "its first line must be client,from,to")
    entries = []
    for number, cells in enumerate(lines[1:], 2):
        try:
            if cells:
                client, begin, end = cells
                entries.append((int(client), float(begin), float(end)))
        except ValueError:
            remedy = f"{path.name}, line {number}: three numbers, client,from,to"
            raise InputError("availability.trace", ",".join(cells), remedy) from None
    return tuple(entries)
