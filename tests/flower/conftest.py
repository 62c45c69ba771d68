from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

if find_spec("flwr") is None:  # it comes with sdfeel[flower], and so with sdfeel[dev]
    collect_ignore_glob = ["test_*.py"]

for folder in (Path(__file__).parent / "apps", Path(__file__).parent.parent / "deploy"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
