"""What users install is `sdfeel` alone: tools that measure it stay in the repository."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def test_the_wheel_holds_the_package_and_nothing_of_the_benchmarks() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = settings["tool"]["setuptools"]
    assert built["packages"]["find"] == {"where": ["src"]}
    assert list(built["package-data"]) == ["sdfeel"]
    packages = {path.parent for path in SOURCE.rglob("*.py")}
    assert {path.relative_to(SOURCE).parts[0] for path in packages} == {"sdfeel"}
    assert not (SOURCE / "sdfeel" / "bench").exists()


def test_no_module_of_the_wheel_imports_a_benchmark() -> None:
    benchmarks = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & benchmarks, file
