"""A page that is open for hours, in minutes: `python benchmarks/page_hours.py [LOOKS]`.

A run of 100,000 rows comes in evenly over so many looks of the page (500), as it does in 8 hours;
the page's timers are turned on by hand, so that no time passes between two looks. Every tenth of
it: rows, looks, the heap and the elements after collecting garbage, the memory of the browser's
process. Needs Playwright and Chromium.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from sdfeel.page.runs import LOOK_EVERY, Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.views import Views

ROWS = 100_000
LOOK = 300  # milliseconds, as in main.js


def resident(process: int) -> float:
    """Megabytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def main(looks: int) -> None:
    noise = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        folder = Path(place) / "long"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"scheme": "sd-feel"}))
        file = (folder / "metrics.csv").open("w", buffering=1)
        file.write("iteration,seconds,train_loss,test_accuracy,disagreement\n")
        with file, serving(PageServer(Views(Runs([Path(place)])))) as server:
            page = browser.new_page()
            page.clock.install()
            page.goto(server.address)
            page.wait_for_selector("html[data-drawn]")
            tell = page.context.new_cdp_session(page)
            tell.send("Performance.enable")
            system = browser.new_browser_cdp_session()
            found = system.send("SystemInfo.getProcessInfo")["processInfo"]
            own = [p["id"] for p in found if p["type"] == "renderer"]  # and one in waiting
            written = 0
            for look in range(1, looks + 1):
                until = ROWS * look // looks
                lines = []
                for k in range(written, until):
                    left = float(np.exp(-k / 20_000))
                    loss = left + noise.normal(0, 0.01)
                    lines.append(f"{k},{k / 10},{loss},{1 - left},{left}\n")
                file.writelines(lines)
                file.flush()
                written = until
                with page.expect_response(lambda answer: "api/rows" in answer.url):
                    page.clock.run_for(LOOK)
                if look % max(1, looks // 10) == 0:
                    shown = f"[data-testid=chart-0] path[data-rows='{written}']"
                    while not page.locator(shown).count():
                        page.clock.run_for(LOOK)
                        page.wait_for_timeout(1000 * LOOK_EVERY)
                    tell.send("HeapProfiler.collectGarbage")
                    metrics = tell.send("Performance.getMetrics")["metrics"]
                    told = {one["name"]: one["value"] for one in metrics}
                    most = max(map(resident, own))
                    print(
                        f"{written} rows, {look} looks: "
                        f"heap {told['JSHeapUsedSize'] / 1e6:.1f} MB, "
                        f"{told['Nodes']:.0f} elements, process {most:.0f} MB",
                        flush=True,
                    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
