"""No request makes the page work without end: what it costs is counted before it begins."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.errors import InputError
from sdfeel.page import timeline, what_if
from sdfeel.page.runs import MOST_ROWS, Runs
from sdfeel.page.timeline import Timeline, algorithm_of, network_of
from sdfeel.page.views import Views
from sdfeel.page.what_if import NUMBERS, choices
from sdfeel.page.work import MOST_WORK, Budget, most_links, work_of_round
from sdfeel.simulation.settings import Settings

MOST = {name: str(most) for name, (_, _, most) in NUMBERS.items()}
DRAWN = {
    "sizes": [1, 1, 1], "samples": [1, 1, 1], "links": [[0, 1], [1, 2]], "parameters": 10,
    "flops_per_step": 1.0,
}  # fmt: skip


BY_CLIENTS = [name for name, scheme in SCHEMES.items() if scheme.servers == "clients"]


class Built(Exception):  # noqa: N818
    """Something was made."""


def refuse_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(*_: object, **__: object) -> None:
        raise Built

    monkeypatch.setattr(what_if.Network, "build", build)


def test_every_choice_of_the_page_is_answered(monkeypatch) -> None:
    """At the ends of all sliders; nothing is refused but servers as many as clients."""
    refuse_to_build(monkeypatch)
    for name, words in choices()["words"].items():
        for word in words:
            if word not in BY_CLIENTS:
                with pytest.raises(Built):
                    what_if.what_if({**MOST, name: word})


def test_what_is_too_much_is_refused_before_anything_is_made(monkeypatch) -> None:
    refuse_to_build(monkeypatch)
    for scheme in BY_CLIENTS:
        with pytest.raises(InputError, match="more than a page works out"):
            what_if.what_if({**MOST, "scheme": scheme})


def settings(**changes: object) -> Settings:
    return Settings.of(changes)


@pytest.mark.parametrize("above", [0, 1])
def test_the_bound_is_where_it_says(above: int) -> None:
    """At the limit, and one beyond it."""
    tau2 = 10
    base = work_of_round(1, 0, 0, settings(schedule={"tau1": 1, "tau2": tau2, "alpha": 1}))
    clients = (MOST_WORK - base) // tau2 + above
    shape = (1, clients, 0, settings(schedule={"tau1": 1, "tau2": tau2, "alpha": 1}))
    if above:
        with pytest.raises(InputError):
            Budget("x").spend(*shape)
    else:
        Budget("x").spend(*shape)


def test_a_graph_by_name_has_no_more_links_than_are_counted() -> None:
    from sdfeel.network import GRAPHS, build_graph

    for name in GRAPHS:
        for servers in (4, 30, 200):
            links = build_graph(name, servers).number_of_edges()
            assert links <= most_links(name, servers), (name, servers)


@pytest.mark.parametrize(
    "schedule",
    [
        {"tau1": 1, "tau2": 10**9, "alpha": 1},
        {"tau1": 1, "tau2": 1, "alpha": 10**9},
        {"tau1": 10**9, "tau2": 10**30, "alpha": 1},
    ],
    ids=str,
)
def test_a_run_that_never_ends_a_round_is_not_played(schedule: dict[str, int]) -> None:
    with pytest.raises(InputError, match="more than a page works out"):
        algorithm_of(DRAWN, {"schedule": schedule})


def test_graphs_that_change_are_counted_each() -> None:
    ring = [[n, (n + 1) % 1000] for n in range(1000)]
    graphs = [[ring, 1]] * 4
    drawn = DRAWN | {"sizes": [1] * 1000, "samples": [1] * 1000, "links": ring, "graphs": graphs}
    with pytest.raises(InputError, match="more than a page works out"):
        algorithm_of(drawn, {})


@pytest.mark.parametrize("table", ["profile", "trace"])
def test_a_profile_that_is_no_regular_file_is_not_opened(tmp_path: Path, table: str) -> None:
    """A run folder names it, and somebody else may have written that."""
    pipe, profile = tmp_path / "pipe.toml", tmp_path / "own.toml"
    os.mkfifo(pipe)
    profile.write_text('[availability]\ntrace = "pipe.toml"')
    named = pipe if table == "profile" else profile
    with pytest.raises(InputError, match="must be a regular file"):
        algorithm_of(DRAWN, {"clock": {"profile": str(named)}})


def test_a_graph_in_a_file_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "graph.txt")
    table = {"graph": str(tmp_path / "graph.txt"), "servers": 3, "clients_per_server": 1}
    with pytest.raises(InputError, match=r"network\.json"):
        network_of({}, {"network": table})


def test_a_look_plays_so_many_events_and_the_next_goes_on(monkeypatch) -> None:
    config = {"schedule": {"tau1": 1, "tau2": 1, "alpha": 1}}
    whole, parts = (Timeline(algorithm_of(DRAWN, config), 50) for _ in range(2))
    row = {"seconds": float("inf")}
    assert whole.advance(row)
    monkeypatch.setattr(timeline, "MOST_WORK", 7 * timeline.work_of_event(whole.event))
    looks = next(look for look in count(1) if parts.advance(row))
    assert looks == 50 // 7 + 1
    assert parts.event.ends == whole.event.ends
    assert list(parts.boxes) == list(whole.boxes)


def test_timelines_that_are_kept_are_few(write_run, curve, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sdfeel.page.runs.LOOK_EVERY", 0)
    monkeypatch.setattr("sdfeel.page.timeline.MOST_WORK", 1000)  # how far each comes is no matter
    folder = write_run(curve(count=3), "run")
    (folder / "network.json").write_text(json.dumps(DRAWN))
    views = Views(Runs([tmp_path]))
    for number in range(40):
        (folder / "run.json").write_text(json.dumps({"seed": number}))
        views.table["runs"]({})
        views.table["timeline"]({"run": "run"})
    assert len(views._timelines) == 32


def test_a_band_is_of_a_bounded_number_of_rows(write_run, curve, tmp_path: Path) -> None:
    write_run(curve(count=3), "one")
    runs = Runs([tmp_path])
    runs.look()
    assert runs.band(["one"] * 500, "seconds", "train_loss")["seeds"] == 1, "each once"
    runs.get("one").metrics.columns["iteration"].extend([1.0] * MOST_ROWS)
    with pytest.raises(InputError, match=f"at most {MOST_ROWS}"):
        runs.band(["one"], "seconds", "train_loss")


@pytest.mark.parametrize(
    "settings", [{"averager": "trap:x"}, {"methods": ["trap:x"]}, {"trainers": "trap:x"}], ids=str
)
def test_what_a_folder_says_is_never_imported(tmp_path: Path, monkeypatch, settings) -> None:
    """A run of somebody else names a module: the page does not touch it."""
    (tmp_path / "trap.py").write_text("import pathlib\npathlib.Path('sprung').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with suppress(InputError):
        algorithm_of(DRAWN, settings)
    with suppress(InputError):
        Settings.of(settings)
    assert not (tmp_path / "sprung").exists()
