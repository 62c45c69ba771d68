"""The documentation as a reader's browser gets it: from disk, with no network, every link alive.

Its equations once were raw LaTeX on every page, and nobody looked: so a test does.
"""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="the documentation's tools come with sdfeel[dev]")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
RAW = re.compile(r"\\[(\[]|\$\$|\$`|`\$|\\[a-z]{2,}")  # LaTeX that was left as it was written
VERBATIM = {"code", "pre", "script", "style"}
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
IN_STYLE = re.compile(r"""(?:url\(|@import\s+(?!url))\s*["']?([^"')\s]+)""")


class Page(HTMLParser):
    """What a page shows, loads and links to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids, self.links, self.loads = {""}, [], []
        self.shown, self.equations, self.resumed_lists = "", 0, 0
        self._verbatim = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self._verbatim += tag in VERBATIM
        self.equations += tag == "math"
        self.resumed_lists += tag == "ol" and given.get("start", "1") != "1"
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])

    def handle_endtag(self, tag):
        self._verbatim -= tag in VERBATIM

    def handle_data(self, text):
        if not self._verbatim:
            self.shown += text


def faults(site: Path) -> list[str]:
    """All that is wrong with the pages of a folder, in words."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name} shows {raw!r}" for raw in RAW.findall(page.shown)]
        found += [f"{name} has a numbered list that was interrupted"] * page.resumed_lists
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    found.append(f"{name} loads {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                found.append(f"{name} leads to {link}, which is not there")
            elif target in pages and unquote(parts.fragment) not in pages[target].ids:
                found.append(f"{name} leads to {link}, whose heading is not there")
    for path in sorted(site.rglob("*.css")):
        for link in IN_STYLE.findall(path.read_text(encoding="utf-8")):
            if not link.startswith("data:") and not (path.parent / link).is_file():
                found.append(f"{path.relative_to(site)} loads {link}")
    return found


@pytest.fixture(scope="module")
def site(docs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the documentation once for the tests here."""
    folder = tmp_path_factory.mktemp("site")
    strictly = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(folder / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *strictly, str(docs), str(folder / "site")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return (folder / "site").resolve()


def test_built_pages_are_whole(site: Path) -> None:
    assert faults(site) == []
    theory = Page(site / "theory.html")
    assert theory.equations > 100, "Theorem 1 is made of equations"
    assert (site / "index.html").is_file()


WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.mark.slow
def test_no_page_scrolls_sideways(site: Path) -> None:
    """They did at 1440 pixels, by 32: the text was set too wide for the two side bars."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="comes with sdfeel[dev]")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine; `.ci/run` installs it")
    wide = []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width in (1440, 900, 390):
            page = browser.new_page(viewport={"width": width, "height": 900})
            for path in sorted(site.rglob("*.html")):
                page.goto(path.as_uri())
                if page.evaluate(WIDER) > 0:
                    wide.append((path.name, width))
        browser.close()
    assert not wide


def test_every_question_is_answered_within_two_clicks_of_home(site: Path) -> None:
    """Home leads to the questions, and each of the twenty to an answer that is there."""
    home = Page(site / "index.html")
    assert "questions.html" in home.links
    text = (site / "questions.html").read_text(encoding="utf-8")
    rows = re.findall(
        r"<tr class=\"row-(?:even|odd)\"><td>(.*?)</td>\s*<td>(.*?)</td>", text, re.DOTALL
    )
    assert len(rows) == 20
    for question, answer in rows:
        assert "?" in question
        links = re.findall(r'href="([^"#]+)', answer)
        assert links, question
        assert all((site / link).is_file() for link in links), question


def test_screenshots_and_figures_fit_the_theme(site: Path) -> None:
    page = (site / "page.html").read_text(encoding="utf-8")
    for theme in ("light", "dark"):
        assert re.search(rf'class="[^"]*only-{theme}[^"]*"[^>]*page-curves-{theme}', page)
    assert re.search(r'class="[^"]*figure[^"]*"', (site / "index.html").read_text(encoding="utf-8"))


def test_notebooks_show_their_figures(site: Path) -> None:
    for name in ("compare", "own", "deploy"):
        text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert '<img class="figure"' in text, name


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (r"<p>with \(x\)</p>", r"shows '\\('"),
        (r"<p>the norm \tau_1</p>", r"shows '\\tau'"),
        ("<p>$$x$$</p>", "shows '$$'"),
        ("<p>$`x`$</p>", "shows '$`'"),
        ("<ol start=4><li>fourth</ol>", "has a numbered list that was interrupted"),
        (
            '<script src="https://cdn.example.org/a.js"></script>',
            "loads https://cdn.example.org/a.js",
        ),
        ('<link rel="stylesheet" href="//example.org/a.css">', "loads //example.org/a.css"),
        ('<a href="gone.html">x</a>', "leads to gone.html, which is not there"),
        ('<a href="#gone">x</a>', "leads to #gone, whose heading is not there"),
        ('<img src="gone.png">', "leads to gone.png, which is not there"),
    ],
)
def test_a_broken_page_is_noticed(tmp_path: Path, body: str, fault: str) -> None:
    (tmp_path / "index.html").write_text(f"<body>{body}</body>", encoding="utf-8")
    assert f"index.html {fault}" in faults(tmp_path)


def test_a_whole_page_is_not(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        r'<h1 id="top">A</h1><code>\(x\)</code><ol><li>first</ol><a href="#top">x</a>'
        '<a href="https://example.org/">elsewhere</a><math><mi>x</mi></math>',
        encoding="utf-8",
    )
    assert faults(tmp_path) == []


@pytest.mark.parametrize("rule", ['@import "https://x.org/a.css";', "a { src: url(gone.woff); }"])
def test_a_style_sheet_that_loads_from_elsewhere_is_noticed(tmp_path: Path, rule: str) -> None:
    (tmp_path / "a.css").write_text(rule, encoding="utf-8")
    assert len(faults(tmp_path)) == 1
