"""A page that names a file of the project names one that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = re.compile(r"\b(?:tests|benchmarks|examples|src)/[\w/]+\.(?:py|toml)\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(NAMED.findall(page.read_text(encoding="utf-8")))
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


def test_the_pattern_finds_what_pages_write() -> None:
    assert NAMED.findall("(`tests/a/test_b.py`), `python benchmarks/pace.py`") == [
        "tests/a/test_b.py",
        "benchmarks/pace.py",
    ]
