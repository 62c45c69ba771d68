"""Underlays: the places of servers and the lines that models go over, as data.

An underlay is a TOML file: those of `underlays/` by name, any other by its path.

    places = ["Berlin", "Paris", "Rome"]                       # servers 0, 1, 2
    links = [["Berlin", "Paris", 878], ["Paris", "Rome", 1106]]  # kilometres

A message between any two servers takes the shortest way. It is 4 ms and 8.5 us a kilometre late (as
measured between data centres: Gueye et al., IEEE/ACM Trans. Netw. 14(6), 2006), and each of the
lines on its way gives it an equal part of its rate: so Marfoq et al., NeurIPS 2020.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError, closest
from sdfeel.network.graphs import check_connected
from sdfeel.toml import read_toml

SECONDS = 0.004  # of any message, whatever the distance
SECONDS_PER_KM = 8.5e-6
MAX_PLACES = 1_000  # the shortest ways between more take many seconds


@dataclass(frozen=True, eq=False)
class Underlay:
    """How far servers are from one another.

    km     of the shortest way between each two places
    lines  how many lines that way has
    """

    name: str
    places: tuple[str, ...]
    km: NDArray[np.float64]
    lines: NDArray[np.int64]

    @property
    def latency(self) -> NDArray[np.float64]:
        """Seconds by which a message between each two servers is late, whatever its length."""
        seconds: NDArray[np.float64] = np.asarray(SECONDS + SECONDS_PER_KM * self.km, np.float64)
        return seconds

    def transfer(self, bits: float, rate: float) -> NDArray[np.float64]:
        """Seconds of so many bits between each two servers, over lines of this rate."""
        seconds: NDArray[np.float64] = np.asarray(bits * self.lines / rate)
        return seconds

    @classmethod
    def of(cls, table: dict[str, Any], name: str) -> Underlay:
        """Check a table; what is wrong with it is named."""
        places, links = table.get("places"), table.get("links")
        for key, value in table.items():
            if key not in ("places", "links"):
                remedy = f"unknown key; {closest(key, ('places', 'links'))}"
                raise InputError(f"underlay {name}: {key}", value, remedy)
        if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
            raise InputError(f"underlay {name}: places", places, 'a list of names: ["A", "B"]')
        if not 0 < len(places) <= MAX_PLACES or len(set(places)) < len(places):
            remedy = f"one to {MAX_PLACES:,} names, each of them once"
            raise InputError(f"underlay {name}: places", len(places), remedy)
        graph = nx.Graph()
        graph.add_nodes_from(places)
        for link in links if isinstance(links, list) else [links]:
            a, b, km = _checked(link, places, name)
            graph.add_edge(a, b, km=km)
        check_connected(f"underlay {name}: links", graph)
        return cls(name, tuple(places), *_shortest(graph))


def underlay_names() -> list[str]:
    """The underlays that come with sdfeel."""
    folder = resources.files("sdfeel.clock") / "underlays"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


@lru_cache(maxsize=8)
def load_underlay(name: str) -> Underlay:
    """An underlay by name, or by the path of a TOML file."""
    if name in underlay_names():
        text = (resources.files("sdfeel.clock") / "underlays" / f"{name}.toml").read_text("utf-8")
        return Underlay.of(read_toml(text, "underlay"), name)
    if name.endswith(".toml"):
        return Underlay.of(read_toml(Path(name), "underlay"), Path(name).stem)
    remedy = f"{closest(name, underlay_names())}; or the path of a .toml file"
    raise InputError("underlay", name, remedy)


def _checked(link: Any, places: list[str], name: str) -> tuple[str, str, float]:
    field, example = f"underlay {name}: links", '["Berlin", "Paris", 878]'
    if not isinstance(link, list) or len(link) != 3:
        raise InputError(field, link, f"two places and their kilometres: {example}")
    a, b, km = link
    for end in (a, b):
        if end not in places:
            raise InputError(field, end, f"is no place; {closest(str(end), places)}")
    if a == b or isinstance(km, bool) or not isinstance(km, int | float) or not 0 <= km < 1e6:
        remedy = f"two different places and their kilometres, from 0 to 1,000,000: {example}"
        raise InputError(field, link, remedy)
    return a, b, float(km)


def _shortest(graph: nx.Graph) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Kilometres and lines of the shortest ways, by Floyd and Warshall."""
    km = nx.to_numpy_array(graph, weight="km", nonedge=np.inf)
    np.fill_diagonal(km, 0.0)
    lines = np.where(np.isfinite(km), 1, 0)
    np.fill_diagonal(lines, 0)
    for over in range(len(km)):
        through = km[:, [over]] + km[over]
        shorter = through < km
        km = np.where(shorter, through, km)
        lines = np.where(shorter, lines[:, [over]] + lines[over], lines)
    return km, lines
