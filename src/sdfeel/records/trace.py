"""What happens beside the metrics of a run: real seconds, and how far apart neighbours are.

trace.csv    one row per evaluation: iteration, elapsed (real seconds of the run so far, over all
             its starts), for each link `a-b` between servers the distance ||y_a - y_b||, and
             where each server's model is evaluated, its numbers: `loss 0`, `accuracy 0`, ...
network.json who belongs to whom, which servers are neighbours, and the length of a model

Both are for whoever looks at a run: a run that goes on reads neither but its own trace.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sdfeel.files import write_atomically

if TYPE_CHECKING:
    from torch import Tensor

# A network with more of them gets no column for each: the trace would outgrow the metrics.
MOST_LINKS = MOST_SERVERS = 500


class Trace:
    """Appends a line for every iteration that is evaluated; a torn last one is not there to read.

    links  pairs of servers
    after  the iteration that the run goes on from; None from the beginning
    """

    def __init__(self, path: Path, links: Sequence[tuple[int, int]], after: int | None) -> None:
        self.path = path
        self.links = list(links) if len(links) <= MOST_LINKS else []
        self._names = ["iteration", "elapsed", *(f"{a}-{b}" for a, b in self.links)]
        lines = [] if after is None else self._kept(after)
        spent = float(lines[-1].split(",")[1]) if lines else 0.0
        self._began = time.monotonic() - spent
        self._last = int(lines[-1].split(",")[0]) if lines else None
        self._write(lines)

    def _write(self, lines: Sequence[str]) -> None:
        content = "".join(f"{line}\n" for line in [",".join(self._names), *lines])
        write_atomically(self.path, content.encode())

    def _kept(self, after: int) -> list[str]:
        """The lines of earlier starts up to there; none of a trace that is not ours."""
        try:
            head, *lines = self.path.read_text(encoding="utf-8").splitlines()
            names, fields = head.split(","), [line.split(",") for line in lines]
            is_ours = names[: len(self._names)] == self._names
            if not is_ours or any(len(f) != len(names) for f in fields):
                return []
            rows = [",".join(f) for f in fields if int(f[0]) <= after and float(f[1]) >= 0]
        except (OSError, ValueError):
            return []
        self._names = names
        return rows

    def note(
        self,
        iteration: int,
        servers: Tensor,
        numbers: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Write a line.

        Args:
            iteration: after which.
            servers: the models, a row each.
            numbers: by name, a number of each server's model.
        """
        spent = round(time.monotonic() - self._began, 3)
        cells = {"iteration": str(iteration), "elapsed": repr(spent)}
        for a, b in self.links:
            cells[f"{a}-{b}"] = repr(float((servers[a] - servers[b]).double().norm()))
        if len(servers) <= MOST_SERVERS:
            for name, values in (numbers or {}).items():
                cells |= {f"{name} {d}": repr(value) for d, value in enumerate(values)}
        if self._last is None and list(cells) != self._names:
            self._names = list(cells)
            self._write([])
        if iteration == self._last:  # a later look at the same iteration takes the line's place
            before = self.path.read_bytes().splitlines(keepends=True)[:-1]
            write_atomically(self.path, b"".join(before))
        with self.path.open("a", encoding="utf-8") as file:
            file.write(",".join(cells.get(name, "") for name in self._names) + "\n")
        self._last = iteration
