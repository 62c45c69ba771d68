"""The page of the house, drawn from the imports: `python docs/house.py`, and `--check` for CI.

A room is a module or package right under `sdfeel`; what it holds is the first sentence of its
docstring; its doors are the rooms that it imports from; its floor is one above the highest of
those. Which doors may be opened at all is said once, in the layers of import-linter's contract in
pyproject.toml. The ways of a model are numbered lists of modules on the page itself.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import grimp
import house_drawing

ROOT = Path(__file__).parent.parent
PACKAGE = "sdfeel"
BEGIN, END = "<!-- drawn: begin -->", "<!-- drawn: end -->"
WAY = re.compile(r"^## (?P<title>The way of .*)$")
STEP = re.compile(r"^\d+\. `(?P<module>[\w.]+)`")


@dataclass(frozen=True)
class Room:
    """What one box of the drawing shows."""

    name: str
    holds: str
    doors: tuple[str, ...]  # the rooms that it imports from
    floor: int  # 0 is the ground


class HouseError(Exception):
    """The imports are not what the page, or the contract, says of them."""


def find_rooms(graph: grimp.ImportGraph, source: Path) -> dict[str, Room]:
    """All rooms by name, with their doors."""
    names = sorted(
        child.removeprefix(f"{PACKAGE}.")
        for child in graph.find_children(PACKAGE)
        if not child.endswith("__")
    )
    doors = {name: _doors(graph, name) for name in names}
    floors: dict[str, int] = {}
    while len(floors) < len(names):
        ready = [name for name in names if name not in floors and doors[name] <= floors.keys()]
        if not ready:
            raise HouseError(f"a circle of doors among {sorted(set(names) - set(floors))}")
        floors |= {name: max((floors[d] + 1 for d in doors[name]), default=0) for name in ready}
    return {
        name: Room(name, _holds(source / name), tuple(sorted(doors[name])), floors[name])
        for name in names
    }


def _doors(graph: grimp.ImportGraph, name: str) -> set[str]:
    room = f"{PACKAGE}.{name}"
    imported = {
        target
        for module in {room, *graph.find_descendants(room)}
        for target in graph.find_modules_directly_imported_by(module)
    }
    if PACKAGE in imported:
        raise HouseError(f"{room} imports {PACKAGE} itself, which stands above every room")
    return {target.split(".")[1] for target in imported} - {name}


def _holds(place: Path) -> str:
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    if not text:
        raise HouseError(f"{file.name} of {place.name}: a docstring that says what the room holds")
    sentence = re.split(r"(?<=\.)\s", " ".join(text.split("\n\n")[0].split()))[0]
    return re.sub(r"^The \w+ room: ", "", sentence).rstrip(".")


def check_doors(rooms: dict[str, Room], layers: list[str]) -> None:
    """Refuse a door that opens upwards, and a room that no layer names."""
    height = {
        name.strip(" ()").removeprefix(f"{PACKAGE}."): -number
        for number, layer in enumerate(layers)
        for name in re.split("[:|]", layer)
    }
    if missing := sorted(set(rooms) - set(height)):
        raise HouseError(f"no layer of the contract in pyproject.toml has {', '.join(missing)}")
    upwards = [
        f"{room.name} -> {door}"
        for room in rooms.values()
        for door in room.doors
        if height[door] > height[room.name]
    ]
    if upwards:
        raise HouseError(f"doors that open upwards: {', '.join(upwards)}")


def find_ways(page: str) -> dict[str, list[str]]:
    """The modules of each `The way of ...` section, in order."""
    ways: dict[str, list[str]] = {}
    title = None
    for line in page.splitlines():
        if line.startswith("## "):
            way = WAY.match(line)
            title = way["title"] if way else None
        elif title and (step := STEP.match(line)):
            ways.setdefault(title, []).append(step["module"])
    return ways


def check_ways(graph: grimp.ImportGraph, ways: dict[str, list[str]]) -> None:
    """Refuse a step through a module that is gone, or that no other step has to do with."""
    for title, steps in ways.items():
        if gone := [step for step in steps if step not in graph.modules]:
            raise HouseError(f"{title}: there is no {', '.join(gone)}")
        for step in steps:
            others = set(steps) - {step}
            if not any(
                graph.chain_exists(importer=a, imported=b)
                for other in others
                for a, b in ((step, other), (other, step))
            ):
                raise HouseError(f"{title}: no import leads to {step} or from it to another step")


def table(rooms: dict[str, Room]) -> str:
    """What every room holds and which doors it has, from the top floor down."""
    lines = ["| room | holds | has doors to |", "| --- | --- | --- |"]
    for room in sorted(rooms.values(), key=lambda room: (-room.floor, room.name)):
        doors = ", ".join(f"`{door}`" for door in room.doors)
        lines.append(f"| `{room.name}` | {room.holds} | {doors} |")
    return "\n".join(lines)


def draw(root: Path) -> dict[Path, str]:
    """The files of the page as they should be."""
    sys.path.insert(0, str(root / "src"))
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    rooms = find_rooms(graph, root / "src" / PACKAGE)
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    check_doors(rooms, next(c["layers"] for c in contracts if c["type"] == "layers"))
    page = root / "docs" / "house.md"
    text = page.read_text(encoding="utf-8")
    ways = find_ways(text)
    check_ways(graph, ways)
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return {
        page: f"{before}{BEGIN}\n\n{table(rooms)}\n\n{END}{after}",
        page.with_suffix(".svg"): house_drawing.svg(rooms, ways, PACKAGE),
    }


def main() -> int:
    """Write the page, or with `--check` compare it."""
    parser = argparse.ArgumentParser(description="Draw docs/house from the imports.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it differs")
    check = parser.parse_args().check
    try:
        for path, text in draw(ROOT).items():
            if not check:
                path.write_text(text, encoding="utf-8")
            elif not path.exists() or path.read_text(encoding="utf-8") != text:
                raise HouseError(f"docs/{path.name} is old: `python docs/house.py` draws it again")
    except HouseError as problem:
        print(f"the house: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
