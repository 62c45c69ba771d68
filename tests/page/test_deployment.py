"""A real deployment, killed while the page looks on: what is lost is named, with its cause."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

import toy
from faulty import faulty, write_deployment
from harness import as_toml, content, import_path
from proxy import Mode

from sdfeel.cli import app
from sdfeel.cli.watch import watch
from sdfeel.clock import load_profile
from sdfeel.deploy.config import load_deployment
from sdfeel.deploy.facts.period_times import PARTS
from sdfeel.deploy.operate.edge_status import EdgeStatus
from sdfeel.deploy.operate.status import Look
from sdfeel.errors import InputError
from sdfeel.page.deployment import EVERY, TIMEOUT
from sdfeel.page.observed import Observed
from sdfeel.page.prediction import predicted
from sdfeel.page.spans import UNSURE
from sdfeel.page.stories import stories

# Of the page: how many times it had asked when an answer first told of something new, and when it
# was first to be seen. What happened before this was called does not count.
WATCH = """
(what) => {
  const list = document.querySelector("[data-testid=incidents]");
  const begins = () => [...list.querySelectorAll("li[data-first]")]
    .filter((line) => line.textContent.includes(what)).map((line) => Number(line.dataset.first));
  const mark = { last: Math.max(0, ...begins()), told: null, shown: null };
  (window.marks ??= {})[what] = mark;
  if (!window.asked) {
    window.asked = { count: 0 };
    const before = window.fetch;
    window.fetch = async (...given) => {
      const answer = await before(...given);
      if (String(given[0]).includes("api/deployment")) {
        window.asked.count += 1;
        for (const story of (await answer.clone().json()).incidents) {
          for (const [words, mark] of Object.entries(window.marks)) {
            const isNew = story.what.includes(words) && story.first > mark.last;
            if (isNew) mark.told ??= window.asked.count;
          }
        }
      }
      return answer;
    };
  }
  new MutationObserver(() => {
    if (Math.max(0, ...begins()) > mark.last) mark.shown ??= window.asked.count;
  }).observe(list, { childList: true, subtree: true, characterData: true });
}
"""
# Whether what goes on has begun so many seconds ago.
LONG_AGO = """
(seconds) => {
  const line = document.querySelector("[data-testid=incidents] li.open");
  return line && Date.now() / 1000 - Number(line.dataset.first) > seconds;
}
"""
# How long the page waits before it asks the next time.
NEXT_LOOK = """
() => new Promise((done) => {
  const before = window.setTimeout;
  window.setTimeout = (call, wait, ...rest) => { done(wait); return before(call, wait, ...rest); };
})
"""


@pytest.fixture
def takes(monkeypatch) -> list[tuple[dict[str, EdgeStatus], set[str]]]:
    """Every look of the page's server: how edges answered, and what was told by then."""
    seen: list[tuple[dict[str, EdgeStatus], set[str]]] = []
    take = Observed.take
    rows: dict[str, EdgeStatus] = {}

    def noting(self: Observed, look: Look, now: float) -> None:
        take(self, look, now)
        rows[look.row.name] = look.row
        told = stories(self.seen, self.silences, self.skews, {}, now)
        seen.append(({**rows}, {story.what for story in told if story.last is None}))

    monkeypatch.setattr(Observed, "take", noting)
    return seen


def check_at_once(takes: list, wrong: Callable[[dict], bool], what: str) -> None:
    """The first look that could see it has it: so the time is that of a look, anywhere."""
    first = next(told for rows, told in takes if wrong(rows))
    assert what in first


def check_seconds(page, b: dict) -> None:
    """Of a round, as the edge measured them and as the clock predicts them, number by number."""
    assert b["phases"].keys() == set(PARTS)
    assert b["phases"]["compute"] >= 0.05, "the toy sleeps so long, and says so"
    page.wait_for_selector("[data-bar=b]")
    shown = {part: page.locator(f"[data-bar=b] [data-part={part}]") for part in PARTS}
    assert all(float(cell.get_attribute("data-value")) >= 0 for cell in shown.values())
    clock = load_profile("paper").latencies(toy.SIZE, 3, 3)
    for part, seconds in (("compute", 2 * clock.t_cmp[0]), ("exchange", clock.t_sr_sr)):
        cell = page.locator(f"[data-bar=b-clock] [data-part={part}]")
        assert float(cell.get_attribute("data-value")) == pytest.approx(seconds)


def check_bytes(page, told: dict) -> None:
    """A link carries a model each way in an exchange; its ends agree but for what is under way."""
    edges = {edge["name"]: edge for edge in told["edges"]}
    model = 4 * toy.SIZE
    assert told["prediction"]["link_bytes"] == 2 * model
    for a, b in told["links"]:
        here, there = edges[a]["links"][b], edges[b]["links"][a]
        assert here["sent"] >= here["used"] * model > 0
        assert here["sent"] % model == there["sent"] % model == 0
        # What is drawn is of another look than `told`: whole models, and some.
        line = page.locator(f"line[data-link='{a}-{b}']:not([data-bytes='0'])")
        line.wait_for(state="attached")
        assert int(line.get_attribute("data-bytes")) % model == 0


def test_faults_are_told_with_what_follows_from_them(tmp_path: Path, serve, visit, takes) -> None:
    """Killed, frozen, cut: each in the first look that can tell, on the page with that answer."""
    with faulty(tmp_path) as (file, nodes, way):
        page = visit(serve(deployment=file, profile="paper"))
        edges, incidents = page.get_by_test_id("deployment"), page.get_by_test_id("incidents")
        longest = EVERY + TIMEOUT + page.evaluate(NEXT_LOOK) / 1000
        assert longest < 1.8, "of the 2 s, some are for drawing and a busy machine"

        def lasts(what: str) -> None:
            incidents.locator("li.open", has_text=what).first.wait_for()

        def over(what: str, end: str) -> None:
            incidents.locator("li:not(.open)", has_text=what).filter(has_text=end).first.wait_for()

        for edge in "abc":
            row = edges.locator(f"tr[data-edge={edge}]")
            row.locator("[data-cell=links]", has_text="2/2").wait_for()
            row.locator("[data-cell=clients]", has_text="1/1").wait_for()
            page.wait_for_selector(f"[data-bar={edge}]")  # it has been through a round
        assert not incidents.locator("li[data-incident]").count(), "a start is no incident"
        told = page.evaluate("fetch('api/deployment').then((answer) => answer.json())")
        b = next(edge for edge in told["edges"] if edge["name"] == "b")
        assert b["memory"] > 10e6
        assert b["links"].keys() == {"a", "c"}
        check_seconds(page, b)
        check_bytes(page, told)
        assert page.locator("[data-member]").count() == 3

        def harm(what: str) -> None:
            page.evaluate(WATCH, what)
            takes.clear()

        harm("the link between a and b was cut")
        way.set(Mode.CUT)
        lasts("the link between a and b was cut")
        link = page.get_by_test_id("network").locator("line[data-link='a-b']")
        link.and_(page.locator("[data-up=false]")).wait_for(state="attached")
        way.set(Mode.PASS)
        over("the link between a and b was cut", "back")

        harm("c was frozen")
        nodes.processes["c"].send_signal(signal.SIGSTOP)
        lasts("c was frozen, overloaded or cut off")
        what = "c was frozen, overloaded or cut off"
        check_at_once(takes, lambda rows: bool(rows["c"].problem), what)
        page.wait_for_function(LONG_AGO, arg=2 * UNSURE)  # shorter, it would be a busy machine
        nodes.processes["c"].send_signal(signal.SIGCONT)
        over("c was frozen", "back")

        harm("b died")
        nodes.processes["b"].kill()
        nodes.processes["b"].wait()
        lasts("b died")
        check_at_once(takes, lambda rows: bool(rows["b"].problem), "b died")
        nodes.start("edge", "b")
        over("b died", "nothing lost")
        marks = page.evaluate("window.marks")
        assert all(mark["told"] == mark["shown"] is not None for mark in marks.values()), marks
        incidents.locator("li", has_text="b died").locator("summary").first.click()
        incidents.get_by_test_id("strip").locator("circle").first.wait_for()
        incidents.get_by_test_id("incident-replay").first.click()
        incidents.locator("[data-cursor]").first.wait_for(state="attached")
        assert incidents.locator("li[data-incident]").count() == 3, "one story for each fault"


def hear_interrupts() -> None:
    """Whoever runs the tests in the background ignores Ctrl-C, and its children would too."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_launch_with_its_page(tmp_path: Path, visit) -> None:
    """`sdfeel launch --watch`: the address first, then edges and curves; Ctrl-C ends it all."""
    file, _ = write_deployment(tmp_path, edges=2, periods=100_000)
    command = [sys.executable, "-m", "sdfeel", "launch", str(file), "--watch", "--out"]
    around = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(
        [*command, str(tmp_path / "runs")],
        stdout=subprocess.PIPE,
        text=True,
        env=around,
        preexec_fn=hear_interrupts,  # noqa: PLW1509 - nothing else runs in this process
    ) as launched:
        try:
            address = launched.stdout.readline().strip()
            page = visit(SimpleNamespace(address=address))
            row = page.get_by_test_id("deployment").locator("tr[data-edge=b]")
            row.locator("[data-cell=clients]", has_text="1/1").wait_for()
            page.get_by_test_id("legend").locator("button[data-run=b]").wait_for()
            stories = page.get_by_test_id("incidents").locator("li[data-incident]")
            assert stories.count() == 0, "what was never there has not been lost"
            page.close()
        finally:
            launched.send_signal(signal.SIGINT)
            try:
                assert launched.wait(timeout=60) == 130
            finally:
                launched.terminate()  # or a test that fails would never end


def test_a_missing_certificate_is_a_sentence(tmp_path: Path, serve, visit) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(content((1, 1))))
    page = visit(serve(deployment=file))
    page.get_by_test_id("deployment").get_by_text("certificate", exact=False).first.wait_for()


def test_a_prediction_needs_a_profile_that_says_all(tmp_path: Path) -> None:
    file, _ = write_deployment(tmp_path)
    with pytest.raises(InputError, match="flops_per_step"):
        predicted(load_deployment(file), "counted")
    with pytest.raises(InputError, match="give --deployment"):
        watch([tmp_path], profile="paper")


def test_a_prediction_is_what_the_clock_prints(tmp_path: Path) -> None:
    """Three edges on a ring with a client each: `sdfeel clock` has the same network."""
    file, _ = write_deployment(tmp_path, tau1=5, tau2=2, alpha=3, codecs={"up": "int8"})
    found = predicted(load_deployment(file), "paper-downlink")
    words = "clock --tau1 5 --tau2 2 --alpha 3 --servers 3 --clients 1 --profile paper-downlink"
    words += " --up int8"
    said = CliRunner().invoke(app, [*words.split(), "--parameters", str(toy.SIZE), "--json"])
    printed = json.loads(said.output)
    assert found.seconds == printed["seconds_per_round"]
    assert found.link_bytes * 3 == printed["bytes_per_round"]["between"]
    for parts in found.edges.values():
        for part in ("compute", "upload", "exchange", "download"):
            assert parts[part] == pytest.approx(printed[part]), part
        assert parts["waiting"] == pytest.approx(0, abs=1e-9), "all are alike"


def test_a_prediction_without_rounds_is_by_turns(tmp_path: Path) -> None:
    """Each edge has the seconds of its own deadline, whatever the others do."""
    pace = {"name": "asynchronous", "deadline": [0.2, 0.3, 0.4]}
    file, _ = write_deployment(tmp_path, pace=pace)
    found = predicted(load_deployment(file), "paper")
    assert found.seconds is None
    for parts, deadline in zip(found.edges.values(), pace["deadline"], strict=True):
        times = parts["compute"] + parts["upload"] + parts["waiting"]
        assert times == pytest.approx(deadline)
