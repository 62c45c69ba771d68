"""Runs the notebooks: every code cell in order, in a process and a folder of its own.

    python docs/notebooks.py                  # fails with notebook, cell and traceback
    python docs/notebooks.py --write          # and keeps what the cells print
    python docs/notebooks.py docs/notebooks/compare.ipynb

Without Jupyter: a cell's output is what it prints, and its last expression as text or figure.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "notebooks"
LIMIT = 600  # seconds after which a notebook is hopeless


def run_cell(source: str, names: dict[str, Any], title: str) -> tuple[str, bytes | None]:
    """Carry out one cell; return what it prints, and the figure that it ends with."""
    figure = None
    tree = ast.parse(source, title)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(tree, title, "exec"), names)  # noqa: S102 - our own notebooks
            if last is not None:
                end = ast.Expression(last.value)
                value = eval(compile(end, title, "eval"), names)  # noqa: S307
                if hasattr(value, "_repr_png_"):
                    figure = value._repr_png_()
                elif value is not None:
                    print(value)
    except BaseException:
        print(said.getvalue())
        raise
    return said.getvalue(), figure


def outputs(said: str, figure: bytes | None) -> list[dict[str, Any]]:
    """Return the outputs of a cell as a notebook has them."""
    kept: list[dict[str, Any]] = []
    if said:
        text = said.splitlines(keepends=True)
        kept.append({"name": "stdout", "output_type": "stream", "text": text})
    if figure is not None:
        data = {"image/png": base64.b64encode(figure).decode()}
        kept.append({"data": data, "metadata": {}, "output_type": "display_data"})
    return kept


def run_here(path: Path, write: bool) -> None:
    """All cells of a notebook, in this process and folder."""
    import matplotlib

    matplotlib.use("agg")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        said, figure = run_cell("".join(cell["source"]), names, f"{path.name}, cell {number}")
        if write:
            cell["outputs"] = outputs(said, figure)
    if write:
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """0 if every notebook runs to its end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--write", action="store_true", help="keep what the cells print")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    failed = 0
    for path in chosen.notebooks or sorted(FOLDER.glob("*.ipynb")):
        if chosen.here:
            run_here(path, chosen.write)
            continue
        flags = ["--here", *(["--write"] if chosen.write else [])]
        command = [sys.executable, str(Path(__file__).resolve()), *flags, str(path.resolve())]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "MPLBACKEND": "agg"}
            done = subprocess.run(  # noqa: S603
                command, cwd=folder, env=environment, check=False, timeout=LIMIT
            )
        verdict = "ran" if done.returncode == 0 else "FAILED"
        print(f"{path.name} {verdict} in {time.monotonic() - began:.0f} s", flush=True)
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
