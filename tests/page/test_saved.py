"""The page as one file, opened from the disk in a real Chromium, with the network closed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner
from worlds import classification

import sdfeel
from sdfeel.cli import app
from sdfeel.errors import InputError
from sdfeel.page import saved
from sdfeel.page.runs import Runs
from sdfeel.page.saved import save_page
from sdfeel.page.views import Views


@pytest.fixture
def open_file(browser):
    """Opens a file; an error on the console or any request beside it fails the test."""
    wrong: list[str] = []
    contexts = []

    def go(path: Path, **options: object):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        sources = (path.as_uri(), "data:", "blob:")
        page.on("request", lambda r: None if r.url.startswith(sources) else wrong.append(r.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert wrong == []


def test_a_saved_page_shows_what_the_server_showed(
    serve, visit, open_file, write_run, curve, tmp_path: Path
) -> None:
    """Paths of curves, legend and lists are the very same; two seeds have a band."""
    folder = tmp_path / "runs"
    folder.mkdir()
    for seed in (0, 1):
        write_run(curve(count=30, rate=1.0 + seed), f"runs/sd-feel-seed{seed}", seed=seed)
    write_run(curve(count=20, rate=5.0), "runs/two, <b>bold", scheme="fedavg")
    size = save_page(Views(Runs([folder])), tmp_path / "page.html")
    assert size < 2 * 2**20
    paths = "(list) => list.map((path) => [path.dataset.run, path.getAttribute('d')])"
    seen = []
    for page in (visit(serve(folder)), open_file(tmp_path / "page.html")):
        page.wait_for_selector("[data-testid=chart-0] path[data-run]")
        page.wait_for_function(
            "document.querySelectorAll('[data-testid=chart-0] path[data-run]').length > 1"
        )
        assert page.locator("main b").count() == 0, "a name is never markup"
        shown = page.eval_on_selector_all("[data-testid=chart-0] path[data-run]", paths)
        seen.append((sorted(shown), page.get_by_test_id("legend").inner_text()))
    assert seen[0] == seen[1]


def test_what_needs_a_server_is_hidden(open_file, write_run, curve, tmp_path: Path) -> None:
    """No error at load, no empty section: a sentence says what there is not, and why."""
    write_run(curve(count=5), "one")
    save_page(Views(Runs([tmp_path])), tmp_path / "page.html")
    page = open_file(tmp_path / "page.html")
    assert "needs a server" in page.get_by_test_id("notes").inner_text()
    for name in ("what-if", "deployment"):
        assert not page.get_by_test_id(name).is_visible(), name
        assert not page.locator(f"nav a[href='#{name}']").is_visible(), name
    assert page.locator(".note.bad:visible").count() == 0


def test_a_saved_page_replays(open_file, tmp_path: Path) -> None:
    """Cursor, models on their way and timeline need no server; another run is there too."""
    world = classification(samples=(8, 8, 16, 16), clusters=[[0, 1], [2], [3]])
    for averager in ("metropolis", "exact"):
        sdfeel.train(
            world.model, world.datasets, network=world.network, engine="vectorised", lr=0.1,
            steps=40, evaluate_every=4, averager=averager, out=tmp_path / "runs" / averager,
        )  # fmt: skip
    save_page(Views(Runs([tmp_path / "runs"])), tmp_path / "page.html")
    page = open_file(tmp_path / "page.html")
    page.get_by_test_id("network-of").select_option("metropolis")
    page.wait_for_selector("[data-testid=stage][data-layout]")
    page.get_by_test_id("replay").fill("0")
    assert page.get_by_test_id("cursor").get_attribute("data-seconds") == "0"
    line = "[data-testid=lanes] [data-cursor='0'][visibility=visible]"
    page.wait_for_selector(line, state="attached")
    page.get_by_test_id("stage").scroll_into_view_if_needed()
    page.get_by_test_id("play").click()
    page.wait_for_selector("[data-testid=crowd]:not([data-packets='0'])", state="attached")
    page.get_by_test_id("play").click()
    page.get_by_test_id("replay").fill("0")
    page.clock.install()
    page.get_by_test_id("play").click()
    seen = set()
    for _ in range(20):
        page.clock.run_for(50)
        seen.add(page.get_by_test_id("crowd").get_attribute("data-packets"))
    assert "4" in seen, "models of four clients on their way up"
    assert float(page.get_by_test_id("cursor").get_attribute("data-seconds")) > 0
    page.get_by_test_id("network-of").select_option("exact")
    page.wait_for_selector("[data-hub=cloud]", state="attached")


def test_nothing_foreign_and_nothing_unhashed_runs(write_run, curve, tmp_path: Path) -> None:
    """One policy, by hashes; no address of elsewhere; no end of a script from a run's name."""
    write_run(curve(count=5), "x<!--<script>", title="</script><script>alert(1)</script>")
    save_page(Views(Runs([tmp_path])), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert text.count("<script") == 2
    assert "'unsafe" not in text
    assert "default-src 'none'" in text
    assert not re.findall(r"https?://(?!www\.w3\.org)", text)
    assert "import {" not in text


def test_the_command_writes_one_file(write_run, curve, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    write_run(curve(count=5), "runs/one")
    target = tmp_path / "out.html"
    runner = CliRunner()
    ran = runner.invoke(app, ["watch", str(tmp_path / "runs"), "--save", str(target)])
    assert ran.exit_code == 0, ran.output
    assert "opens in a browser without a server" in ran.output
    assert target.stat().st_size > 10_000
    wrong = runner.invoke(app, ["watch", str(tmp_path / "runs"), "--save", "runs.pdf"])
    assert "the name of a page" in str(wrong.exception) + wrong.output


def test_a_page_that_is_too_large_is_refused(monkeypatch, write_run, curve, tmp_path: Path) -> None:
    write_run(curve(count=5), "one")
    monkeypatch.setattr(saved, "MOST", 1000)
    with pytest.raises(InputError, match="fewer folders"):
        save_page(Views(Runs([tmp_path])), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
