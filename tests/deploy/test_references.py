"""Comments and docstrings name modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOM = Path(__file__).parents[2] / "src" / "sdfeel" / "deploy"
ROOMS = sorted(path.name for path in ROOM.iterdir() if path.is_dir() and path.name != "__pycache__")
PAST = ("exchange", "link")  # rooms that there were
NAME = re.compile(rf"`({'|'.join([*ROOMS, *PAST])})\.([a-z_]+)|\b({'|'.join(PAST)})/[a-z_]+\.py")


def test_every_module_that_is_named_is_there() -> None:
    for file in [*ROOM.rglob("*.py"), *ROOM.rglob("*.proto")]:
        for match in NAME.finditer(file.read_text(encoding="utf-8")):
            room, module = match[1], match[2]
            is_there = room and (ROOM / room / f"{module}.py").exists()
            assert is_there, f"{file.name}: {match[0]}"
