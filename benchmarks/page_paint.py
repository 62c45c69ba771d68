"""How soon the live page is there: `python benchmarks/page_paint.py [plotly] [bokeh]`.

20 runs of 1,000 rows: seconds from the command to the address, the first paint and all curves,
then from a new row to the screen. A candidate that is named and installed is drawn beside it, as
the page that it writes itself, without a server. Needs Playwright and Chromium.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

RUNS, ROWS = 20, 1000
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime / 1000"
SHOWS = {"plotly": ".scatterlayer .trace", "bokeh": ".bk-Figure"}


def curves() -> tuple[np.ndarray, list[np.ndarray]]:
    noise = np.random.default_rng(0)
    x = np.arange(float(ROWS))
    return x, [np.exp(-x / 200) + noise.normal(0, 0.01, ROWS) for _ in range(RUNS)]


def write_runs(root: Path) -> None:
    for number, loss in enumerate(curves()[1]):
        folder = root / f"run-{number}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"scheme": "sd-feel", "lr": number}))
        rows = [f"{k},{k / 10},{value},{1 - value}" for k, value in enumerate(loss.tolist())]
        head = "iteration,seconds,train_loss,test_accuracy"
        (folder / "metrics.csv").write_text("\n".join([head, *rows, ""]))


def ours(browser: Browser, root: Path) -> None:
    began = time.perf_counter()
    command = [sys.executable, "-m", "sdfeel", "watch", str(root), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()
        told = time.perf_counter() - began
        page = browser.new_page()
        page.goto(address)
        line = "[data-testid=chart-0] path[data-rows='{}']"
        page.wait_for_selector(line.format(ROWS))
        drawn = time.perf_counter() - began
        painted = told + page.evaluate(PAINT)
        print(f"ours: address {told:.2f} s, first paint {painted:.2f} s, curves {drawn:.2f} s")
        began = time.perf_counter()
        with (root / "run-0" / "metrics.csv").open("a") as file:
            file.write(f"{ROWS},{ROWS / 10},0.1,0.9\n")
        page.wait_for_selector(line.format(ROWS + 1))
        print(f"ours: a new row after {time.perf_counter() - began:.2f} s")
        server.terminate()


def candidate(name: str, browser: Browser, root: Path) -> None:
    x, losses = curves()
    file = root / f"{name}.html"
    if name == "plotly":
        from plotly import graph_objects

        lines = [graph_objects.Scatter(x=x, y=loss) for loss in losses]
        graph_objects.Figure(lines).write_html(file, include_plotlyjs=True)
    else:
        from bokeh.embed import file_html
        from bokeh.plotting import figure
        from bokeh.resources import INLINE

        drawing = figure()
        for loss in losses:
            drawing.line(x, loss)
        file.write_text(file_html(drawing, INLINE))
    page = browser.new_page()
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_selector(SHOWS[name], state="attached")
    spent = time.perf_counter() - began
    print(f"{name}: curves {spent:.2f} s, {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        place = Path(folder)
        write_runs(place)
        ours(chromium, place)
        for named in sys.argv[1:]:
            candidate(named, chromium, place)
