"""Time cursor, stage, editor, presentation and address of the page, in a real Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from worlds import classification

import sdfeel
from sdfeel.page.edit import draft_of_run, edited

CONTRAST = """
(texts) => texts.map((text) => {
  const light = (css) => {
    const [r, g, b] = css.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      const share = v / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const circle = text.parentElement.querySelector("circle");
  const [a, b] = [text, circle].map((node) => light(getComputedStyle(node).fill));
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
})
"""

VALUES = "(servers) => servers.map((server) => Number(server.dataset.value))"
MIDDLE = """
(node) => {
  const box = node.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three schemes on the same network of three servers."""
    world = classification(samples=(8, 8, 16, 16), clusters=[[0, 1], [2], [3]])
    folder = tmp_path_factory.mktemp("runs")
    for scheme in ("sd-feel", "hierfavg", "fedavg"):
        sdfeel.train(
            world.model, world.datasets, network=world.network, engine="vectorised", lr=0.1,
            steps=40, evaluate_every=4, scheme=scheme, test=world.datasets[0], out=folder / scheme,
        )  # fmt: skip
    return folder


def rows_of(folder: Path, name: str = "sd-feel") -> pd.DataFrame:
    return pd.read_csv(folder / name / "metrics.csv")


def cursor_of(page) -> float:
    return float(page.get_by_test_id("cursor").get_attribute("data-seconds"))


def test_sd_feel_is_looked_at_first_and_lists_agree(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    lists = [page.get_by_test_id(name) for name in ("network-of", "time-of")]
    assert [choice.input_value() for choice in lists] == ["sd-feel"] * 2
    lists[1].select_option("hierfavg")
    assert lists[0].input_value() == "hierfavg"


def test_hovering_moves_the_cursor_everywhere(serve, visit, trained: Path) -> None:
    """A value of x under the pointer is a second of the run, whatever the axis counts."""
    page = visit(serve(trained))
    table = rows_of(trained)
    page.locator("[data-testid=lanes] rect").first.wait_for(state="attached")
    page.get_by_test_id("x").select_option("iteration")
    chart = page.get_by_test_id("chart-0")
    chart.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    assert cursor_of(page) == pytest.approx(table["seconds"][3], rel=1e-9)
    for number in (0, 1):
        line = page.get_by_test_id(f"chart-{number}").locator("[data-cursor]")
        assert float(line.get_attribute("data-cursor")) == pytest.approx(table["iteration"][3])
    assert f"iteration {table['iteration'][3]}," in page.get_by_test_id("replay-at").inner_text()
    line = page.get_by_test_id("lanes").locator("[data-cursor]")
    assert float(line.get_attribute("data-cursor")) == cursor_of(page)
    assert line.get_attribute("visibility") == "visible", "its rounds are shown"
    lanes = page.get_by_test_id("lanes").locator("svg")
    lanes.scroll_into_view_if_needed()
    before = cursor_of(page)
    lanes.hover(position={"x": 200, "y": 20})
    assert cursor_of(page) != before
    moved = chart.locator("[data-cursor]").get_attribute("data-cursor")
    assert float(moved) != pytest.approx(table["iteration"][3])


def test_a_whole_replay_takes_ten_seconds(serve, visit, trained: Path) -> None:
    """By the browser's own clock, which the test turns: a quarter at speed 1, all of it at 8."""
    page = visit(serve(trained))
    end = rows_of(trained)["seconds"].iloc[-1]
    page.get_by_test_id("replay").fill("0")
    page.clock.install()
    page.get_by_test_id("play").click()
    page.clock.run_for(2500)
    assert cursor_of(page) == pytest.approx(end / 4, rel=0.05)
    page.get_by_test_id("speed").select_option("0.25")
    page.clock.run_for(4000)
    assert cursor_of(page) == pytest.approx(0.35 * end, rel=0.05)
    page.get_by_test_id("loop").check()
    page.get_by_test_id("speed").select_option("8")
    page.clock.run_for(1250)
    assert cursor_of(page) == pytest.approx(0.35 * end, rel=0.1), "once round"
    page.get_by_test_id("loop").uncheck()
    page.clock.run_for(1250)
    assert cursor_of(page) == end
    assert page.get_by_test_id("play").inner_text() == "play"


def test_the_cursor_has_keys(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    seconds = rows_of(trained)["seconds"]
    page.locator("h1").click()
    for key, row in ((",", -2), (",", -3), (".", -2)):
        page.keyboard.press(key)
        assert cursor_of(page) == pytest.approx(seconds.iloc[row])
    page.keyboard.press("]")
    assert page.get_by_test_id("speed").input_value() == "2"
    page.keyboard.press("Space")
    assert page.get_by_test_id("play").inner_text() == "pause"
    page.keyboard.press("Space")
    assert page.get_by_test_id("play").inner_text() == "play"


def test_models_travel_while_they_are_exchanged(serve, visit, trained: Path) -> None:
    """At a second of each span: over every link and both ways, or from every client."""
    page = visit(serve(trained))
    crowd = page.get_by_test_id("crowd")
    page.locator("line[data-link]").first.wait_for(state="attached")
    server = page.evaluate(
        "fetch('api/rows?run=sd-feel&start=0&table=events').then((answer) => answer.json())"
    )
    columns = {name: values[0] for name, values in server["columns"].items()}
    at = columns["start"] + columns["compute"]
    links = page.locator("line[data-link]").count()
    for name, packets in (("upload", 4), ("exchange", 2 * links)):
        page.goto(f"{page.url.partition('#')[0]}#network&run=sd-feel&at={at + columns[name] / 2}")
        page.reload()
        page.wait_for_selector(f"[data-testid=crowd][data-packets='{packets}']", state="attached")
        at += columns[name] + columns["waiting"]
    assert crowd.count() == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_names_can_be_read_on_every_colour(serve, visit, trained: Path, theme: str) -> None:
    page = visit(serve(trained), color_scheme=theme)
    page.locator("g[data-server]").first.wait_for(state="attached")
    trace = pd.read_csv(trained / "sd-feel" / "trace.csv")
    inside = page.locator("g[data-server] text:not(.beside)")
    for by in ("accuracy", "loss", ""):
        page.get_by_test_id("colour-by").select_option(by)
        for row in range(0, len(trace), 2):
            page.get_by_test_id("replay").fill(str(row))
            assert min(inside.evaluate_all(CONTRAST)) >= 4.5
            shown = page.locator("g[data-server]").evaluate_all(
                "(all) => all.map((g) => g.dataset.value)"
            )
            if by:
                assert [float(v) for v in shown] == [trace[f"{by} {n}"][row] for n in range(3)]


def test_schemes_are_drawn_as_what_they_are(serve, visit, trained: Path) -> None:
    """A cloud has no ring: clients around one server, or servers around it."""
    page = visit(serve(trained))
    network = page.get_by_test_id("network")
    page.get_by_test_id("network-of").select_option("fedavg")
    network.locator("g[data-server=cloud]").wait_for(state="attached")
    assert network.locator("line[data-link]").count() == 0
    page.get_by_test_id("network-of").select_option("hierfavg")
    network.locator("g[data-hub=cloud]").wait_for(state="attached")
    assert network.locator("[data-spoke]").count() == 3
    assert network.locator("[data-link]").count() == 0
    assert "noted" not in network.inner_text()


GRAPHS = {
    "ring": ("ring", 8), "path": ("path", 6), "star": ("star", 6), "full": ("full", 6),
    "torus": ("torus", 12), "dumbbell": ("dumbbell", 8), "bipartite": ("partial", 6),
    "circle": ("ring-diagonals", 8), "forces": ("random", 12),
}  # fmt: skip


def test_every_graph_has_its_layout(serve, visit, write_run, curve, tmp_path: Path) -> None:
    """And no two servers of it stand at the same place."""
    for kind, (graph, servers) in GRAPHS.items():
        folder = write_run(curve(count=2), kind)
        network = sdfeel.Network.build(graph, servers, 2)
        links = sorted([min(link), max(link)] for link in network.graph.edges())
        drawn = {"sizes": [2] * servers, "clusters": None, "links": links,
                 "samples": [20.0] * servers, "parameters": 10, "flops_per_step": 1e6}  # fmt: skip
        (folder / "network.json").write_text(json.dumps(drawn))
    page = visit(serve(tmp_path))
    for kind, (_, servers) in GRAPHS.items():
        page.get_by_test_id("network-of").select_option(kind)
        page.wait_for_selector(f"[data-testid=stage][data-layout={kind}]")
        places = page.locator("g[data-server] circle").evaluate_all(
            "(all) => all.map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])"
        )
        gaps = [np.hypot(*np.subtract(a, b)) for a in places for b in places if a is not b]
        assert len(places) == servers
        assert min(gaps) > 25, kind


def test_servers_stand_where_the_graph_says(serve, visit, tmp_path: Path) -> None:
    """North is above; the shape of the map stays; a place that is missing is no map."""
    world = classification(samples=(8, 8, 16, 16), clusters=[[0, 1], [2], [3]])
    graph = nx.path_graph(3)
    for name, places in (("map", [(0, 0), (4, 0), (4, 2)]), ("part", [(0, 0), (4, 0)])):
        nx.set_node_attributes(graph, dict(enumerate(places)), "pos")
        network = sdfeel.Network([[0, 1], [2], [3]], graph)
        sdfeel.train(
            world.model, world.datasets, network=network, engine="vectorised", lr=0.1, steps=2,
            out=tmp_path / name,
        )  # fmt: skip
        graph = nx.path_graph(3)
    page = visit(serve(tmp_path))
    page.get_by_test_id("network-of").select_option("map")
    page.wait_for_selector("[data-testid=stage][data-layout=given]")
    (ax, ay), (bx, by), (cx, cy) = page.locator("g[data-server] circle").evaluate_all(
        "(all) => all.map((c) => [Number(c.getAttribute('cx')), Number(c.getAttribute('cy'))])"
    )
    assert (ay, bx) == (pytest.approx(by), pytest.approx(cx))
    assert cy < by, "north"
    assert (bx - ax) == pytest.approx(2 * (by - cy))
    page.get_by_test_id("network-of").select_option("part")
    page.wait_for_selector("[data-testid=stage][data-layout=path]")


# The editor


def shown(page, name: str) -> float:
    return float(page.get_by_test_id(f"edit-{name}").get_attribute("data-value"))


def wanted(trained: Path, edits: str) -> dict:
    config = json.loads((trained / "sd-feel" / "run.json").read_text())
    drawn = json.loads((trained / "sd-feel" / "network.json").read_text())
    return edited(draft_of_run(drawn, config), {"edits": edits})


def test_the_network_is_edited_by_mouse(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    board = page.get_by_test_id("board")
    board.scroll_into_view_if_needed()
    links = board.locator("[data-edit-link]")
    page.wait_for_selector("[data-testid=edit-zeta]")
    count = links.count()

    def drag(one: str, other: str) -> None:
        ends = [board.locator(place).evaluate(MIDDLE) for place in (one, other)]
        page.mouse.move(*ends[0])
        page.mouse.down()
        page.mouse.move(*ends[1], steps=4)
        page.mouse.up()

    drag("[data-edit-client='0']", "[data-edit-server='2'] circle")
    seconds = "[data-testid=edit-zeta][data-value='{}']"
    page.wait_for_selector(seconds.format(wanted(trained, "m0-2")["zeta"]))
    before = [link.get_attribute("data-edit-link") for link in links.all()]
    missing = "0-1" if "0-1" in before else "0-2" if "0-2" in before else "1-2"
    a, b = missing.split("-")
    drag(f"[data-edit-server='{a}'] circle", f"[data-edit-server='{b}'] circle")
    page.wait_for_function(
        "(n) => document.querySelectorAll('[data-edit-link]').length === n", arg=count - 1
    )
    page.get_by_test_id("edit-undo").click()
    page.wait_for_selector(seconds.format(wanted(trained, "m0-2")["zeta"]))


def test_the_network_is_edited_without_a_mouse(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    page.wait_for_selector("[data-testid=edit-zeta]")
    board = page.get_by_test_id("board")
    server = board.locator("[data-edit-server='0']")
    server.focus()
    page.keyboard.press("s")
    page.wait_for_selector("[data-edit-server='3']")
    page.keyboard.press("Enter")
    assert board.locator("[data-edit-server='0']").get_attribute("aria-pressed") == "true"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")  # it was linked to the new one: cut
    page.get_by_text("must be connected").wait_for()
    page.get_by_test_id("edit-a").select_option("1")
    page.get_by_test_id("edit-b").select_option("3")
    page.get_by_test_id("edit-add").click()
    answer = wanted(trained, "s0 -0-3 +1-3")
    page.wait_for_selector(f"[data-testid=edit-zeta][data-value='{answer['zeta']}']")
    assert shown(page, "seconds") == answer["seconds_per_round"]
    assert shown(page, "bytes") == sum(answer["bytes_per_round"].values())
    assert shown(page, "liars") == answer["liars_survived"]["connected"]
    page.get_by_test_id("copy-toml").click()
    assert page.get_by_test_id("edit-toml").inner_text().strip() == answer["toml"].strip()
    assert page.get_by_test_id("edit-command").inner_text().strip() == answer["command"].strip()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_test_id("copy-command").click()
    page.get_by_text("copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == answer["command"]


# Sharing and showing


def test_the_address_opens_the_same_view(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    page.get_by_test_id("network-of").select_option("hierfavg")
    page.get_by_test_id("x").select_option("iteration")
    page.get_by_test_id("log").check()
    page.get_by_test_id("colour-by").select_option("loss")
    page.get_by_test_id("legend").locator("button[data-run=fedavg]").click()
    page.get_by_test_id("replay").fill("3")
    page.wait_for_function("() => location.hash.includes('at=') && location.hash.includes('hide=')")
    second = page.context.new_page()
    second.goto(page.url)
    second.wait_for_selector("html[data-drawn]")
    assert second.get_by_test_id("network-of").input_value() == "hierfavg"
    assert second.get_by_test_id("x").input_value() == "iteration"
    assert second.get_by_test_id("log").is_checked()
    assert second.get_by_test_id("colour-by").input_value() == "loss"
    hidden = second.get_by_test_id("legend").locator("button[aria-pressed=false]")
    assert hidden.get_attribute("data-run") == "fedavg"
    assert cursor_of(second) == pytest.approx(rows_of(trained, "hierfavg")["seconds"][3])


def test_a_presentation_shows_one_view_in_large_type(serve, visit, trained: Path) -> None:
    page = visit(serve(trained))
    size = "parseFloat(getComputedStyle(document.body).fontSize)"
    before = page.evaluate(size)
    page.locator("h1").click()
    page.keyboard.press("p")
    assert page.evaluate(size) > 1.3 * before
    views = page.locator("main > section")
    seen = "(all) => all.filter((s) => s.checkVisibility()).map((s) => s.id)"
    assert len(views.evaluate_all(seen)) == 1
    page.keyboard.press("3")
    assert views.evaluate_all(seen) == ["network"]
    page.keyboard.press("ArrowRight")
    assert views.evaluate_all(seen) == ["time"]
    page.keyboard.press("?")
    assert page.get_by_test_id("keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    assert len(views.evaluate_all(seen)) > 3


def test_fifty_runs_leave_the_window_free(serve, visit, write_run, curve, tmp_path: Path) -> None:
    """The tip has the ten curves that are nearest, by value; it fits into the window."""
    for number in range(50):
        table = curve(count=12)
        table["train_loss"] += number
        write_run(table, f"a run with quite a long name, number {number}", lr=number)
    page = visit(serve(tmp_path))
    chart = page.get_by_test_id("chart-0")
    chart.hover(position={"x": 300, "y": 150})
    tip = page.get_by_test_id("tip")
    values = tip.locator("td[data-value]:last-child").evaluate_all(
        "(cells) => cells.map((cell) => Number(cell.dataset.value))"
    )
    assert len(values) == 10
    assert values == sorted(values, reverse=True)
    assert tip.locator("svg").count() == 10
    assert "and 40 more" in tip.inner_text()
    box, window = tip.bounding_box(), page.viewport_size
    assert box["width"] <= window["width"] / 2
    assert box["height"] <= window["height"] / 2 + 1
    legend = page.get_by_test_id("legend")
    assert legend.evaluate("(list) => list.scrollHeight > list.clientHeight")


def test_marks_of_a_zoomed_chart_stay_inside(serve, visit, write_run, curve, tmp_path) -> None:
    write_run(curve(count=30), "one")
    page = visit(serve(tmp_path))
    chart = page.get_by_test_id("chart-0")
    chart.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("+")
    for mark in chart.locator("[data-mark]").all():
        assert re.fullmatch(r"url\(#clip-0\)", mark.get_attribute("clip-path"))


def test_the_report_of_a_comparison_and_the_page_lead_to_each_other(
    serve, visit, trained: Path, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    from sdfeel.cli import app

    settings = ["until=1", "network.clients_per_server=1", "network.servers=3"]
    words = [word for setting in settings for word in ("--set", setting)]
    folder = tmp_path / "compare"
    done = CliRunner().invoke(
        app, ["compare", "demo", "--schemes", "sd-feel,hierfavg", "--out", str(folder), *words]
    )
    assert done.exit_code == 0, done.output
    page = visit(serve(folder))
    link = page.get_by_test_id("reports").locator("a")
    with page.expect_popup() as opened:
        link.click()
    report = opened.value
    assert report.locator("h2").first.inner_text() == "Results"
    report.get_by_text("Replay these runs").click()
    report.wait_for_selector("html[data-drawn]")
    text = (folder / "replay.html").read_text("utf-8")
    assert '"reports": ["index.html"]' in text
    assert page.request.get(f"{page.url.partition('#')[0]}report?of=nothing").status == 400
