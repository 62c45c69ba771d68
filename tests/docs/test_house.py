"""The page of the house says what the imports are, and a wrong door is found."""

import subprocess
import sys
from pathlib import Path

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter brings it, with sdfeel[dev]")

import house  # noqa: E402 - needs grimp
import house_drawing  # noqa: E402


def room(name: str, *doors: str, floor: int = 0) -> house.Room:
    return house.Room(name, f"what {name} holds", doors, floor)


def graph(**imports: list[str]) -> grimp.ImportGraph:
    """An import graph of rooms: name -> the modules that it imports."""
    built = grimp.ImportGraph()
    for module in {"sdfeel", *(f"sdfeel.{name}" for name in imports)}:
        built.add_module(module)
    for name, targets in imports.items():
        for target in targets:
            built.add_import(importer=f"sdfeel.{name}", imported=target)
    return built


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("cli", "clock", "network"):
        (tmp_path / f"{name}.py").write_text(f'"""The {name} room: x of {name}. And more."""\n')
    return tmp_path


def test_the_page_is_what_the_imports_say(docs: Path) -> None:
    """`make docs` runs the same; here so that a stale page fails before that."""
    ran = subprocess.run(
        [sys.executable, str(docs / "house.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_rooms_stand_above_those_they_have_doors_to(source: Path) -> None:
    imports = graph(cli=["sdfeel.clock", "sdfeel.network"], clock=["sdfeel.network"], network=[])
    rooms = house.find_rooms(imports, source)
    assert [rooms[name].floor for name in ("network", "clock", "cli")] == [0, 1, 2]
    assert rooms["cli"] == house.Room("cli", "x of cli", ("clock", "network"), 2)


def test_a_circle_of_doors_is_refused(source: Path) -> None:
    imports = graph(cli=[], clock=["sdfeel.network"], network=["sdfeel.clock"])
    with pytest.raises(house.HouseError, match=r"circle.*clock.*network"):
        house.find_rooms(imports, source)


def test_nobody_imports_the_package_itself(source: Path) -> None:
    with pytest.raises(house.HouseError, match=r"sdfeel\.network imports sdfeel itself"):
        house.find_rooms(graph(cli=[], clock=[], network=["sdfeel"]), source)


def test_a_room_says_what_it_holds(source: Path) -> None:
    (source / "network.py").write_text("import math\n")
    with pytest.raises(house.HouseError, match="docstring"):
        house.find_rooms(graph(cli=[], clock=[], network=[]), source)


@pytest.mark.parametrize(
    "layers",
    [
        ["sdfeel.cli", "sdfeel.clock : sdfeel.data", "sdfeel.network"],
        ["cli", "clock | data", "(network)"],
    ],
)
def test_doors_open_downwards_only(layers: list[str]) -> None:
    rooms = {
        r.name: r for r in (room("cli", "clock"), room("clock"), room("data"), room("network"))
    }
    house.check_doors(rooms, layers)
    with pytest.raises(house.HouseError, match="open upwards: network -> cli"):
        house.check_doors({**rooms, "network": room("network", "cli")}, layers)
    with pytest.raises(house.HouseError, match=r"no layer .* has attic"):
        house.check_doors({**rooms, "attic": room("attic")}, layers)


def test_ways_are_read_from_the_page() -> None:
    steps = "1. `sdfeel.a` does\n   more\n2. `sdfeel.b`\n"
    page = f"## Else\n\n1. `sdfeel.no`\n\n## The way of it\n\n{steps}\n## More\n\n1. `sdfeel.no`\n"
    assert house.find_ways(page) == {"The way of it": ["sdfeel.a", "sdfeel.b"]}


def test_a_way_leads_through_modules_that_have_to_do_with_each_other() -> None:
    imports = graph(a=["sdfeel.b"], b=[], c=[])
    house.check_ways(imports, {"way": ["sdfeel.b", "sdfeel.a"]})
    with pytest.raises(house.HouseError, match=r"there is no sdfeel\.gone"):
        house.check_ways(imports, {"way": ["sdfeel.a", "sdfeel.gone"]})
    with pytest.raises(house.HouseError, match=r"no import leads to sdfeel\.c"):
        house.check_ways(imports, {"way": ["sdfeel.a", "sdfeel.b", "sdfeel.c"]})


def test_the_drawing_has_every_room_and_every_door_that_no_other_implies() -> None:
    rooms = {
        "cli": room("cli", "clock", "network", floor=2),
        "clock": room("clock", "network", floor=1),
        "network": room("network"),
    }
    drawn = house_drawing.svg(rooms, {"The way": ["sdfeel.clock.a", "sdfeel.network"]}, "sdfeel")
    assert drawn.count('class="room"') == 3
    assert drawn.count('class="door"') == 2
    assert drawn.count('class="step"') == 2
    assert drawn == house_drawing.svg(
        rooms, {"The way": ["sdfeel.clock.a", "sdfeel.network"]}, "sdfeel"
    )
