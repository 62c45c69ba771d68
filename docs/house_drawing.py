"""The house as an SVG: a floor a row, a room a box, and a line for each door."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from html import escape
from statistics import fmean
from typing import NamedTuple, Protocol

import networkx as nx

__all__ = ["svg"]

WIDTH, GAP, STOREY, LINE = 212, 26, 46, 15
COLOURS = ("#c2410c", "#0369a1", "#15803d")  # one for each way
STYLE = """
text { font: 12px system-ui, "Liberation Sans", Arial, sans-serif; fill: #374151; }
.name { font: bold 14px ui-monospace, "Liberation Mono", Consolas, monospace; fill: #111827; }
.room { fill: #f3f4f6; stroke: #9ca3af; }
.door { fill: none; stroke: #9ca3af; stroke-width: 1.3; marker-end: url(#arrow); }
.step { font-size: 10px; font-weight: bold; fill: #ffffff; text-anchor: middle; }
"""


Place = str | tuple[str, str, int]  # a room, or the lane of a door through a floor


class Room(Protocol):
    """What is drawn of a room."""

    name: str
    holds: str
    doors: tuple[str, ...]
    floor: int


class Box(NamedTuple):
    """Where a room or a lane is drawn."""

    left: int
    top: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.left + self.width // 2


def svg(rooms: Mapping[str, Room], ways: Mapping[str, list[str]], package: str) -> str:
    """Rooms on their floors; a door that others imply (a to b to c) has no line of its own."""
    doors = nx.transitive_reduction(
        nx.DiGraph([(room.name, door) for room in rooms.values() for door in room.doors])
    )
    paths = {door: _path(rooms, *door) for door in sorted(doors.edges)}
    floors = _floors(rooms, paths)
    lines = {name: textwrap.wrap(room.holds.replace("`", ""), 30) for name, room in rooms.items()}
    spans = [sum(_width(place) + GAP for place in floor) - GAP for floor in floors]
    width = max(spans) + 2 * GAP
    boxes: dict[Place, Box] = {}
    top = GAP
    for floor, span in zip(floors, spans, strict=True):
        left = (width - span) // 2
        tallest = max(34 + LINE * len(lines[place]) for place in floor if isinstance(place, str))
        for place in floor:
            boxes[place] = Box(left, top, _width(place), tallest)
            left += _width(place) + GAP
        top += tallest + STOREY
    parts = [_door([boxes[place] for place in path]) for path in paths.values()]
    parts += [_room(boxes[name], name, lines[name]) for name in sorted(rooms)]
    parts += _steps(boxes, ways, package)
    for title, colour in zip(ways, COLOURS, strict=False):
        parts.append(f'<circle cx="{GAP + 8}" cy="{top - 4}" r="8" fill="{colour}"/>')
        parts.append(f'<text x="{GAP + 22}" y="{top}">{escape(title)}</text>')
        top += 20
    return "\n".join([*_head(width, top + 6), *parts, "</svg>", ""])


def _path(rooms: Mapping[str, Room], above: str, below: str) -> list[Place]:
    """From room to room, by a lane through each floor in between."""
    between = range(rooms[above].floor - 1, rooms[below].floor, -1)
    return [above, *((above, below, floor) for floor in between), below]


def _floors(
    rooms: Mapping[str, Room], paths: Mapping[tuple[str, str], list[Place]]
) -> list[list[Place]]:
    """Rooms and lanes by floor, the top one first, ordered so that few lines cross."""
    top = max(room.floor for room in rooms.values())
    floors: list[list[Place]] = [[] for _ in range(top + 1)]
    for name in sorted(rooms):
        floors[top - rooms[name].floor].append(name)
    beside = nx.Graph()
    beside.add_nodes_from(rooms)
    for path in paths.values():
        nx.add_path(beside, path)
        for lane in path[1:-1]:
            floors[top - lane[2]].append(lane)
    where: dict[Place, float] = {}
    for _ in range(8):  # down and up again, each near the middle of what it is joined with
        for floor in (*floors, *reversed(floors)):
            middle = {
                place: fmean([where.get(other, 0.5) for other in beside[place]] or [0.5])
                for place in floor
            }
            floor.sort(key=lambda place, middle=middle: (middle[place], str(place)))
            where |= {place: (n + 0.5) / len(floor) for n, place in enumerate(floor)}
    return floors


def _width(place: Place) -> int:
    return WIDTH if isinstance(place, str) else 0


def _head(width: int, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="The rooms of the house and their doors">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
        ' markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#9ca3af"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
    ]


def _room(box: Box, name: str, lines: list[str]) -> str:
    text = "".join(
        f'<text x="{box.left + 10}" y="{box.top + 38 + LINE * i}">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<rect class="room" x="{box.left}" y="{box.top}" width="{box.width}"'
        f' height="{box.height}" rx="6"/>'
        f'<text class="name" x="{box.left + 10}" y="{box.top + 20}">{name}</text>{text}'
    )


def _door(path: list[Box]) -> str:
    """Out at the bottom of the first box, straight through the lanes, in at the top of the last."""
    x, y = path[0].middle, path[0].top + path[0].height
    line = f"M{x} {y}"
    for box in path[1:]:
        bend = (box.top - y) // 2
        line += f" C{x} {y + bend} {box.middle} {box.top - bend} {box.middle} {box.top}"
        x, y = box.middle, box.top + box.height
        if box is not path[-1]:
            line += f" V{y}"
    return f'<path class="door" d="{line}"/>'


def _steps(boxes: Mapping[Place, Box], ways: Mapping[str, list[str]], package: str) -> list[str]:
    """The numbers of each way's steps, on the upper edge of the room where they happen."""
    marks: dict[str, list[tuple[int, str]]] = {}
    for steps, colour in zip(ways.values(), COLOURS, strict=False):
        for number, module in enumerate(steps, start=1):
            room = module.removeprefix(f"{package}.").split(".")[0]
            marks.setdefault(room, []).append((number, colour))
    parts = []
    for room, numbers in sorted(marks.items()):
        box = boxes[room]
        for place, (number, colour) in enumerate(reversed(numbers)):
            x = box.left + box.width - 14 - 19 * place
            parts.append(
                f'<circle cx="{x}" cy="{box.top}" r="8.5" fill="{colour}"/>'
                f'<text class="step" x="{x}" y="{box.top + 3.5}">{number}</text>'
            )
    return parts
