"""Take the pictures of the live page that stand in docs/page.md, whole and in both themes.

    sdfeel compare demo --set until=30 --set evaluation.every=5 --out runs/pictures
    sdfeel plan demo --budget 20 --out runs/pictures/plan
    python docs/screenshots.py runs/pictures

Needs Playwright and Chromium. Pictures of a deployment are taken by hand: it has to run.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from sdfeel.page.runs import Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.views import Views

IMAGES = Path(__file__).parent / "images"
WIDE, HIGH, EDGE = 1100, 900, 16
EDITS = "%2B0-5%20s3%20m12-4"
# The run and the second that are looked at, in the middle of an exchange; and edits.
STATE = f"&run=sd-feel&at=12.304&rounds=4&edits={EDITS}"
# Picture: the element, and what has to be there.
VIEWS = {
    "overview": ("#overview", "[data-testid=runs] tbody tr"),
    "curves": ("#curves", "[data-testid=chart-1] path[data-run]"),
    "network": ("#network", "g[data-server]"),
    "time": ("#time", "[data-testid=lanes] rect"),
    "editor": ("#editor", "[data-testid=edit-zeta]"),
    "what-if": ("#what-if", "[data-testid=what-if-seconds][data-value]"),
}

# The header and the bar of the cursor stay in the window: they are not part of a view.
HIDE = "document.querySelectorAll('header, #cursor').forEach((node) => { node.hidden = true; });"
HIDE += " scrollTo({ top: 0, behavior: 'instant' });"


def take(page: Page, theme: str) -> None:
    for name, (place, ready) in VIEWS.items():
        page.locator(ready).first.wait_for(state="attached")
        page.evaluate(HIDE)
        box = page.locator(place).bounding_box()
        if box is None:
            raise SystemExit(f"{place} is not shown")
        around = {
            "x": box["x"] - EDGE, "y": box["y"], "width": box["width"] + 2 * EDGE,
            "height": box["height"],
        }  # fmt: skip
        page.screenshot(path=IMAGES / f"page-{name}-{theme}.png", clip=around, full_page=True)


def main() -> None:
    folder = Path(sys.argv[1])
    with sync_playwright() as driver, serving(PageServer(Views(Runs([folder])))) as server:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for theme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDE, "height": HIGH},
                color_scheme=theme,
                reduced_motion="reduce",
            )
            page.goto(f"{server.address}#overview{STATE}")
            page.wait_for_selector("html[data-drawn]")
            page.wait_for_selector("[data-testid=crowd]:not([data-packets='0'])", state="attached")
            take(page, theme)
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
