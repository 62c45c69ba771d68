"""How soon a fault of a deployment is on the live page: `python benchmarks/page_faults.py [TIMES]`.

Three edges and three clients as processes with mutual TLS, watched in Chromium. Each fault is done
so many times (5), each at another moment of a look; the seconds are from the deed to the moment
when the page shows the event with its cause. Needs Playwright and Chromium.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "deploy"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "deployment"))

from faulty import Nodes, Way, faulty
from playwright.sync_api import Page, sync_playwright
from proxy import Mode

from sdfeel.page.deployment import Watcher
from sdfeel.page.runs import Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.views import Views

# When the text was first there, by the clock that the deed is timed with.
NOTE = """
([what, cause]) => {
  const root = document.documentElement;
  delete root.dataset.shown;
  const list = document.querySelector("[data-testid=events]");
  const look = () => {
    const open = [...list.querySelectorAll("li.open")].map((line) => line.textContent);
    const isThere = open.some((text) => text.includes(what) && text.includes(cause));
    if (isThere) root.dataset.shown ??= Date.now() / 1000;
  };
  window.observer?.disconnect();
  window.observer = new MutationObserver(look);
  window.observer.observe(list, { childList: true, subtree: true, characterData: true });
}
"""
Deed = Callable[[], object]


def deeds(nodes: Nodes, way: Way) -> dict[str, tuple[str, str, Deed, Deed]]:
    """Name: what the page must say, its cause, the deed, and how it is undone."""
    frozen = nodes.processes["c"]

    def kill() -> None:
        nodes.processes["b"].kill()
        nodes.processes["b"].wait()

    return {
        "a link is cut": (
            "a lost b", "answers us: the way between the two is cut",
            lambda: way.set(Mode.CUT), lambda: way.set(Mode.PASS),
        ),
        "a link swallows all": (
            "a stalls", "waits for b",
            lambda: way.set(Mode.FREEZE), lambda: way.set(Mode.PASS),
        ),
        "an edge is frozen": (
            "c stopped answering", "it is frozen",
            lambda: frozen.send_signal(signal.SIGSTOP), lambda: frozen.send_signal(signal.SIGCONT),
        ),
        "an edge is killed": (
            "b stopped answering", "nothing listens at its address",
            kill, lambda: nodes.start("edge", "b"),
        ),
    }  # fmt: skip


def measure(page: Page, what: str, cause: str, deed: Deed, undo: Deed) -> float:
    """Of one fault; afterwards all is well again."""
    time.sleep(random.random())  # noqa: S311 - somewhere within a look
    page.evaluate(NOTE, [what, cause])
    began = time.time()
    deed()
    page.wait_for_selector("html[data-shown]")
    shown = float(page.evaluate("document.documentElement.dataset.shown"))
    undo()
    page.wait_for_selector("[data-testid=events] li.open", state="detached")
    return shown - began


def main(times: int) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        with (
            faulty(Path(folder), deadlines={"ping": 5.0}) as (file, nodes, way),
            serving(PageServer(Views(Runs([]), Watcher(file)))) as server,
        ):
            page = browser.new_page()
            page.set_default_timeout(60_000)
            page.goto(server.address)
            page.wait_for_selector("tr[data-edge=c] [data-cell=clients]")
            page.wait_for_selector("[data-testid=events] li.open", state="detached")
            for name, case in deeds(nodes, way).items():
                found = sorted(measure(page, *case) for _ in range(times))
                print(f"{name}: median {found[len(found) // 2]:.2f} s, longest {found[-1]:.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
