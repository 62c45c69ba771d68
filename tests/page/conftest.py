"""A real Chromium on a real server; the browser of the machine, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from run_folders import curve, write_run

from sdfeel.page.deployment import Watcher
from sdfeel.page.runs import Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.views import Views

__all__ = ["curve", "write_run"]

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")

Serve = Callable[..., PageServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server of the page for some folders, until the test is over."""
    with ExitStack() as stack:

        def start(
            *folders: Path, deployment: Path | None = None, profile: str | None = None
        ) -> PageServer:
            watcher = None
            if deployment is not None:
                from sdfeel.deploy.config import load_deployment
                from sdfeel.page.prediction import predicted

                about = load_deployment(deployment)
                watcher = Watcher(deployment, None, predicted(about, profile) if profile else None)
            server = PageServer(Views(Runs(folders), watcher))
            return stack.enter_context(serving(server))

        yield start


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """While its driver lives, an event loop runs in this thread: no other test may come between."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="comes with sdfeel[dev]")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; `.ci/run` installs it")
    with sync_api.sync_playwright() as driver:
        # Nothing but loopback resolves: whatever the page would load from elsewhere fails.
        closed = ["--no-sandbox", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        found = driver.chromium.launch(executable_path=CHROMIUM, args=closed)
        yield found
        found.close()


@pytest.fixture
def visit(browser) -> Iterator[Callable[..., object]]:
    """Opens an address; a word on the browser's console or a request elsewhere fails the test."""
    wrong: list[str] = []
    contexts = []

    def go(server: PageServer, **options: object):
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)  # a busy machine is not a wrong page
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        home = server.address.partition("?")[0]
        page.on(
            "request",
            lambda r: None if r.url.startswith((home, "data:", "blob:")) else wrong.append(r.url),
        )
        page.goto(server.address)
        page.wait_for_selector("html[data-drawn]")
        return page

    yield go
    for context in contexts:
        context.close()
    assert [text for text in wrong if "400 (Bad Request)" not in text] == []
