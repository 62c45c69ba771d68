"""Nothing of the page is serious or critical to axe-core, in either theme.

axe-core comes from npm into a cache, when the tests are set up; nothing of it is part of sdfeel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from worlds import classification

import sdfeel
from sdfeel.page.runs import Runs
from sdfeel.page.saved import save_page
from sdfeel.page.views import Views

GRAVE = ("serious", "critical")


@pytest.fixture(scope="module")
def axe(pytestconfig: pytest.Config) -> str:
    """The program of axe-core, fetched once."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine; `.ci/run` installs it")
    assert pytestconfig.cache is not None
    folder = Path(pytestconfig.cache.mkdir("axe-core"))
    if not list(folder.glob("axe-core-*.tgz")):
        subprocess.run([npm, "pack", "axe-core@4"], cwd=folder, check=True, capture_output=True)
    with tarfile.open(max(folder.glob("axe-core-*.tgz"))) as package:
        file = package.extractfile("package/axe.min.js")
        assert file is not None
        return file.read().decode()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two schemes, one that is under way, and one that is damaged."""
    world = classification(samples=(8, 8, 16, 16), clusters=[[0, 1], [2], [3]])
    folder = tmp_path_factory.mktemp("runs")
    for scheme in ("sd-feel", "hierfavg"):
        sdfeel.train(
            world.model, world.datasets, network=world.network, engine="vectorised", lr=0.1,
            steps=12, evaluate_every=4, scheme=scheme, test=world.datasets[0], out=folder / scheme,
        )  # fmt: skip
    for name in ("under way", "damaged"):
        shutil.copytree(folder / "sd-feel", folder / name)
        (folder / name / "summary.json").unlink()
    (folder / "damaged" / "metrics.csv").write_text("iteration,train_loss\n0,what\n")
    return folder


def graves(page, axe: str) -> list[str]:
    """What is wrong, with the first element of each kind."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": axe})
    session.detach()
    violations = page.evaluate("axe.run(document)")["violations"]
    return [
        f"{rule['id']} ({rule['impact']}): {rule['nodes'][0]['html'][:200]}"
        for rule in violations
        if rule["impact"] in GRAVE
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_whole_page_and_each_view(serve, visit, runs: Path, axe: str, theme: str) -> None:
    page = visit(serve(runs), color_scheme=theme)
    for ready in ("g[data-server]", "[data-testid=edit-zeta]", "[data-testid=lanes] rect"):
        page.locator(ready).first.wait_for(state="attached")
    assert graves(page, axe) == []
    page.locator("h1").click()
    page.keyboard.press("p")
    for number, _ in enumerate(page.locator("main > section:visible, main > section").all()):
        page.keyboard.press(str(number + 1))
        assert graves(page, axe) == [], f"view {number + 1}"
    page.keyboard.press("?")
    assert graves(page, axe) == [], "keys"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_narrow_window(serve, visit, runs: Path, axe: str, theme: str) -> None:
    page = visit(serve(runs), color_scheme=theme, viewport={"width": 390, "height": 800})
    page.locator("g[data-server]").first.wait_for(state="attached")
    assert graves(page, axe) == []


def test_a_saved_page(browser, runs: Path, axe: str, tmp_path: Path) -> None:
    save_page(Views(Runs([runs])), tmp_path / "page.html")
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-drawn]")
    assert graves(page, axe) == []
    page.close()


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """Two edges with a client each, and the page of them."""
    pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")
    from faulty import write_deployment
    from harness import import_path

    file, _ = write_deployment(tmp_path, edges=2, periods=100_000)
    command = [sys.executable, "-m", "sdfeel", "launch", str(file), "--watch", "--out"]
    around = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(
        [*command, str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True, env=around
    ) as process:
        assert process.stdout is not None
        yield SimpleNamespace(address=process.stdout.readline().strip())
        process.terminate()


def test_a_deployment(visit, launched: SimpleNamespace, axe: str) -> None:
    for theme in ("light", "dark"):
        page = visit(launched, color_scheme=theme)
        page.locator("tr[data-edge=b] [data-cell=clients]", has_text="1/1").wait_for()
        page.locator("g[data-server]").first.wait_for(state="attached")
        assert graves(page, axe) == [], theme
        page.close()
