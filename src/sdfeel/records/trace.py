"""What happens beside the metrics of a run: real seconds, and how far apart neighbours are.

trace.csv    one row per evaluation: iteration, elapsed (real seconds of the run so far, over all
             its starts), and for each link `a-b` between servers the distance ||y_a - y_b||
network.json who belongs to whom, which servers are neighbours, and the length of a model

Both are for whoever looks at a run: a run that goes on reads neither but its own trace.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sdfeel.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

# A network with more links gets no column for each: the trace would outgrow the metrics.
MOST_LINKS = 500


class Trace:
    """Appends a line for every iteration that is evaluated; a torn last one is not there to read.

    links  pairs of servers
    after  the iteration that the run goes on from; None from the beginning
    """

    def __init__(self, path: Path, links: Sequence[tuple[int, int]], after: int | None) -> None:
        self.path = path
        self.links = list(links) if len(links) <= MOST_LINKS else []
        names = ["iteration", "elapsed", *(f"{a}-{b}" for a, b in self.links)]
        lines = [] if after is None else self._kept(names, after)
        spent = float(lines[-1].split(",")[1]) if lines else 0.0
        self._began = time.monotonic() - spent
        self._last = int(lines[-1].split(",")[0]) if lines else None
        write_atomically(path, "".join(f"{line}\n" for line in [",".join(names), *lines]).encode())

    def _kept(self, names: list[str], after: int) -> list[str]:
        """The lines of earlier starts up to there; none of a trace that is not ours."""
        try:
            head, *lines = self.path.read_text(encoding="utf-8").splitlines()
            fields = [line.split(",") for line in lines]
            if head.split(",") != names or any(len(f) != len(names) for f in fields):
                return []
            return [",".join(f) for f in fields if int(f[0]) <= after and float(f[1]) >= 0]
        except (OSError, ValueError):
            return []

    def note(self, iteration: int, servers: Tensor) -> None:
        """The servers' models after an iteration, a row each."""
        apart = [float((servers[a] - servers[b]).double().norm()) for a, b in self.links]
        cells = [str(iteration), repr(round(time.monotonic() - self._began, 3)), *map(repr, apart)]
        if iteration == self._last:  # a later look at the same iteration takes the line's place
            before = self.path.read_bytes().splitlines(keepends=True)[:-1]
            write_atomically(self.path, b"".join(before))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(",".join(cells) + "\n")
        self._last = iteration
