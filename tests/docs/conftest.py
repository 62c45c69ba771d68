"""The tools of the documentation are scripts in docs/, not part of the package."""

import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
sys.path[:0] = [str(DOCS), str(DOCS / "extensions")]


@pytest.fixture(scope="session")
def docs() -> Path:
    return DOCS
