"""How the documentation is written, as far as a program can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Made from the code or by a command; people look things up there, and read the other pages.
MADE = {
    "cli.md", "deployment_file.md", "events.md", "performance.md", "profiles.md", "reference.md",
    "reproduction/devices.md", "reproduction/methods.md", "reproduction/results.md", "settings.md",
}  # fmt: skip
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN = [path for path in PAGES if str(path).removeprefix(f"{ROOT}/docs/") not in MADE]
MOST_WORDS = 35_000
LONGEST_PAGE = 3_000
CODE = re.compile(r"```.*?```|`[^`\n]*`|\$`.*?`\$|\]\([^)]*\)", re.DOTALL)


def prose(path: Path) -> str:
    return CODE.sub("", path.read_text(encoding="utf-8"))


def test_the_documentation_can_be_read() -> None:
    """It had 52,000 words, with two pages of 5,000 and 8,000: walls that nobody climbs."""
    words = {path.name: len(path.read_text(encoding="utf-8").split()) for path in WRITTEN}
    assert sum(words.values()) < MOST_WORDS
    assert not [name for name, count in words.items() if count > LONGEST_PAGE]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_decimals_begin_with_a_digit(path: Path) -> None:
    """`.238` is easily read as 238."""
    assert not re.findall(r"(?<![\w.)\]/*-])\.\d+", prose(path))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_picture_says_what_it_shows(path: Path) -> None:
    """To those who hear a page."""
    assert "![](" not in path.read_text(encoding="utf-8")
