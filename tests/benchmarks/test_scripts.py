"""The scripts of benchmarks/ keep up with the package: what each imports is there."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
NEEDS = {"page": ["playwright"], "flower": ["flwr"]}  # by how a script's name begins


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_can_be_imported(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(script.stem.split("_")[0], []):
        pytest.importorskip(package)
    monkeypatch.setattr(sys, "path", [*sys.path])  # some add to it
    spec = importlib.util.spec_from_file_location(f"script_{script.stem}", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # dataclasses look there
    spec.loader.exec_module(module)
