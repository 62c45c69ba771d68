"""The documentation as a reader's browser gets it: from disk, with no network, every link alive.

Its equations once were raw LaTeX on every page, and nobody looked: so a test does.
"""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("sphinx", reason="the documentation's tools come with sdfeel[dev]")

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


def test_built_pages_are_whole(docs: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    strictly = ["--fail-on-warning", "--keep-going", "--quiet", "-d", str(tmp_path / "doctrees")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *strictly, str(docs), str(site)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert faults(site.resolve()) == []
    theory = Page(site / "theory.html")
    assert theory.equations > 100, "Theorem 1 is made of equations"
    assert (site / "index.html").is_file()


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
