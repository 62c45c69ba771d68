"""A real deployment, killed while the page looks on: what is lost is named, with its cause."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

from faulty import faulty, write_deployment
from harness import as_toml, content, import_path
from proxy import Mode

from sdfeel.deploy.operate.status import EdgeStatus
from sdfeel.page.deployment import EVERY, TIMEOUT
from sdfeel.page.events import Events

# Of the page: how many times it had asked when an answer first told of something, and when it was
# first to be seen. The event is in the text of both.
WATCH = """
(what) => {
  const marks = (window.marks ??= {});
  const mark = (marks[what] = { told: null, shown: null });
  if (!window.asked) {
    window.asked = { count: 0 };
    const before = window.fetch;
    window.fetch = async (...given) => {
      const answer = await before(...given);
      if (String(given[0]).includes("api/deployment")) {
        window.asked.count += 1;
        const text = await answer.clone().text();
        for (const [name, one] of Object.entries(marks)) {
          if (text.includes(name)) one.told ??= window.asked.count;
        }
      }
      return answer;
    };
  }
  const list = document.querySelector("[data-testid=events]");
  new MutationObserver(() => {
    if (list.textContent.includes(what)) mark.shown ??= window.asked.count;
  }).observe(list, { childList: true, subtree: true, characterData: true });
}
"""


@pytest.fixture
def takes(monkeypatch) -> list[tuple[dict[str, EdgeStatus], set[str]]]:
    """Every look of the page's server: how edges answered, and what had happened by then."""
    seen: list[tuple[dict[str, EdgeStatus], set[str]]] = []
    take = Events.take

    def noting(self: Events, rows: list[EdgeStatus]) -> None:
        take(self, rows)
        seen.append(({row.name: row for row in rows}, {event.what for event in self.list}))

    monkeypatch.setattr(Events, "take", noting)
    return seen


def check_at_once(takes: list, wrong: Callable[[dict[str, EdgeStatus]], bool], what: str) -> None:
    """The first look that could see it has it; so the time is that of a look, on any machine."""
    first = next(events for rows, events in takes if wrong(rows))
    assert what in first


def test_a_look_is_short_enough() -> None:
    """An edge that dies just after its answer is on the page after these three, at most."""
    script = (resources.files("sdfeel.page") / "static" / "main.js").read_text()
    page = int(re.search(r"const EVERY = (\d+);", script)[1]) / 1000
    assert EVERY + TIMEOUT + page < 1.8, "of the 2 s, some are for drawing and a busy machine"


def test_faults_are_named_with_their_cause(tmp_path: Path, serve, visit, takes) -> None:
    """Killed, frozen, cut: each in the first look that can tell, on the page with that answer."""
    with faulty(tmp_path) as (file, nodes, way):
        page = visit(serve(deployment=file))
        edges, events = page.get_by_test_id("deployment"), page.get_by_test_id("events")

        def event(what: str, cause: str, end: str = "") -> None:
            wanted = events.locator("li", has_text=f"{what} at").filter(has_text=cause)
            wanted.filter(has_text=end).first.wait_for()

        for edge in "abc":
            row = edges.locator(f"tr[data-edge={edge}]")
            row.locator("[data-cell=links]", has_text="2/2").wait_for()
            row.locator("[data-cell=clients]", has_text="1/1").wait_for()
        page.wait_for_selector("[data-bar=b]")
        told = page.evaluate("fetch('api/deployment').then((answer) => answer.json())")
        b = next(edge for edge in told["edges"] if edge["name"] == "b")
        assert b["memory"] > 10e6
        assert b["link_disagreement"].keys() == {"a", "c"}

        def harm(what: str) -> None:
            page.evaluate(WATCH, what)
            takes.clear()

        harm("a lost b")
        way.set(Mode.CUT)
        event("a lost b", "b answers us: the way between the two is cut")
        check_at_once(takes, lambda rows: rows["a"].links["b"][:4] == "down", "a lost b")
        link = page.get_by_test_id("network").locator("line[data-link='a-b']")
        link.and_(page.locator("[stroke-dasharray]")).wait_for(state="attached")
        way.set(Mode.PASS)
        event("a lost b", "", "back after")

        harm("c stopped answering")
        nodes.processes["c"].send_signal(signal.SIGSTOP)
        event("c stopped answering", "it is frozen, overloaded or cut off (DEADLINE_EXCEEDED")
        check_at_once(takes, lambda rows: bool(rows["c"].problem), "c stopped answering")
        nodes.processes["c"].send_signal(signal.SIGCONT)
        event("c stopped answering", "", "answers again after")

        harm("b stopped answering")
        nodes.processes["b"].kill()
        nodes.processes["b"].wait()
        event("b stopped answering", "nothing listens at its address (UNAVAILABLE")
        check_at_once(takes, lambda rows: bool(rows["b"].problem), "b stopped answering")
        event("c lost b", "b does not answer: nothing listens at its address")
        nodes.start("edge", "b")
        event("c lost b", "", "back after")
        marks = page.evaluate("window.marks")
        assert all(mark["told"] == mark["shown"] is not None for mark in marks.values()), marks


def test_launch_with_its_page(tmp_path: Path, visit) -> None:
    """`sdfeel launch --watch`: the address first, then edges and curves; Ctrl-C ends it all."""
    file, _ = write_deployment(tmp_path, periods=100_000)
    command = [sys.executable, "-m", "sdfeel", "launch", str(file), "--watch", "--out"]
    around = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(
        [*command, str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True, env=around
    ) as launched:
        try:
            address = launched.stdout.readline().strip()
            page = visit(SimpleNamespace(address=address))
            row = page.get_by_test_id("deployment").locator("tr[data-edge=c]")
            row.locator("[data-cell=clients]", has_text="1/1").wait_for()
            page.get_by_test_id("legend").locator("button[data-run=c]").wait_for()
            said = page.get_by_test_id("events").inner_text()
            assert "left" not in said
            assert "lost" not in said, "what was never there has not been lost"
            page.close()
        finally:
            launched.send_signal(signal.SIGINT)
            assert launched.wait(timeout=60) == 130


def test_a_missing_certificate_is_a_sentence(tmp_path: Path, serve, visit) -> None:
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(content((1, 1))))
    page = visit(serve(deployment=file))
    page.get_by_test_id("deployment").get_by_text("certificate", exact=False).first.wait_for()
