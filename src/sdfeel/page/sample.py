"""A sample of the periods of a run, small enough to be sent whole: what the page replays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from sdfeel.page.lanes import PARTS, Box

__all__ = ["MOST_BOXES", "Sample"]

MOST_BOXES = 12_000
ROUNDS = 4  # in a block of a sample: as many as a timeline shows
BLOCKS = 16  # at least, of a run that is too long to be kept whole


class Sample:
    """Blocks of a few whole rounds, evenly spread: of a short run all, of a long one every n-th.

    columns  of the boxes, by name, in the order of events
    stride   one of so many blocks is kept; edition: how often boxes were left out again
    """

    def __init__(self, boxes_per_round: int) -> None:
        self.columns: dict[str, array[float]] = {
            name: array("d") for name in ("lane", "first", "last", "start", *PARTS)
        }
        self._long = max(1, min(ROUNDS * boxes_per_round, MOST_BOXES // BLOCKS))
        self._blocks = array("q")
        self._seen = 0
        self.stride, self.edition = 1, 0

    @property
    def rows(self) -> int:
        return len(self._blocks)

    def add(self, boxes: Iterable[Box]) -> None:
        """Take the boxes of one event."""
        block = self._seen // self._long
        for box in boxes:
            self._seen += 1
            if block % self.stride:
                continue
            self._blocks.append(block)
            for name in ("lane", "first", "last", "start"):
                self.columns[name].append(getattr(box, name))
            for name in PARTS:
                self.columns[name].append(box.parts[name])
        if self.rows > MOST_BOXES:
            self._thin()

    def _thin(self) -> None:
        self.stride *= 2
        self.edition += 1
        rows = [row for row, block in enumerate(self._blocks) if block % self.stride == 0]
        self._blocks = array("q", [self._blocks[row] for row in rows])
        self.columns = {
            name: array("d", [column[row] for row in rows]) for name, column in self.columns.items()
        }
