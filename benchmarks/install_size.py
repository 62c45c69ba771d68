"""What an installation without extras takes on the disk: `python benchmarks/install_size.py`.

It is made in a fresh environment with constraints.txt, as pip leaves it: with the bytecode that pip
compiles. `--site FOLDER` measures the site-packages that are there instead.

Packages that torch itself asks for, whoever else uses them, count as torch's; pip is the
environment's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ("pip",)  # what a fresh one holds already


@dataclass(frozen=True)
class Package:
    name: str
    whole: float  # MB
    bytecode: float
    tests: float  # of the package itself, in folders of that name
    needs: tuple[str, ...]

    @classmethod
    def of(cls, found: Distribution) -> Package:
        paths = [Path(str(file.locate())) for file in found.files or []]
        sizes = {path: path.stat().st_size for path in set(paths) if path.is_file()}
        compiled = sum(size for path, size in sizes.items() if path.suffix == ".pyc")
        tests = sum(size for path, size in sizes.items() if "tests" in path.parts)
        needs = [each for each in found.requires or [] if "extra ==" not in each]
        names = tuple(_plain(re.split(r"[^\w.-]", each, maxsplit=1)[0]) for each in needs)
        return cls(
            _plain(found.name), sum(sizes.values()) / 1e6, compiled / 1e6, tests / 1e6, names
        )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(site: Path) -> dict[str, Package]:
    found = [Package.of(each) for each in distributions(path=[str(site)])]
    return {each.name: each for each in found if each.name not in ENVIRONMENT}


def asked_for_by(name: str, packages: dict[str, Package]) -> set[str]:
    """Everything that a package needs, and what that needs."""
    reached: set[str] = set()
    ahead = [name]
    while ahead:
        for each in packages[ahead.pop()].needs:
            if each in packages and each not in reached:
                reached.add(each)
                ahead.append(each)
    return reached


def install(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    constraints = ["-c", str(ROOT / "constraints.txt")]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *constraints, str(ROOT)], check=True)
    return next((folder / "lib").glob("python*/site-packages"))


def line(name: str, packages: list[Package]) -> str:
    whole, bytecode = sum(p.whole for p in packages), sum(p.bytecode for p in packages)
    return f"{name:<28}{whole:8.1f}{bytecode:8.1f}{whole - bytecode:8.1f}"


def report(packages: dict[str, Package]) -> str:
    names = asked_for_by("torch", packages)
    of_torch = [p for p in packages.values() if p.name in names]
    others = [p for p in packages.values() if p.name not in names | {"torch"}]
    lines = [f"{'MB':<28}{'in all':>8}{'bytecode':>9}{'rest':>7}"]
    lines += [line("torch", [packages["torch"]]), line("what torch asks for", of_torch)]
    lines += [line("everything else", others)]
    lines += [f"{'  of it their own tests':<28}{sum(p.tests for p in others):8.1f}", ""]
    for title, group in (("what torch asks for", of_torch), ("everything else", others)):
        lines += [title + ":"]
        lines += [line(f"  {p.name}", [p]) for p in sorted(group, key=lambda p: -p.whole)]
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--site", type=Path, help="measure this site-packages")
    given = options.parse_args().site
    if given is not None:
        print(report(installed(given)))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(report(installed(install(Path(folder) / "v"))))


if __name__ == "__main__":
    sys.exit(main())
