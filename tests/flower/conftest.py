from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="comes with sdfeel[flower]")
for folder in (Path(__file__).parent / "apps", Path(__file__).parent.parent / "deploy"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
