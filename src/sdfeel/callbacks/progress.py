"""How far a run is, in a line: in a notebook, on a terminal or in a log."""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sdfeel.callbacks.callback import Callback, Row

# Real seconds between two lines: of a bar that is drawn over, and where lines stay.
BAR_EVERY, LINE_EVERY = 0.2, 10.0
BAR = 24  # characters


class ProgressBar(Callback):
    """Show how far a run is, its loss and the time left: in a notebook or terminal one line that is
    drawn over, elsewhere a line on standard error every ten seconds.

    label  at its beginning; the scheme's name by default
    """

    def __init__(self, label: str = "") -> None:
        self.label, self._name = label, label
        self._last, self._next = "", -math.inf
        self._handle: Any = None

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._name = self.label or str(about.get("scheme", ""))
        self._last, self._next, self._handle = "", -math.inf, None

    def on_period(self, progress: Any) -> None:
        ends = progress.iteration >= progress.iterations
        if ends or time.monotonic() >= self._next:
            self._show(_line(self._name, progress))

    def close(self) -> None:
        if self._last and self._handle is None and sys.stderr.isatty():
            sys.stderr.write("\n")
        self._last = ""

    def _show(self, line: str) -> None:
        notebook = _notebook()
        over = notebook is not None or sys.stderr.isatty()
        self._next = time.monotonic() + (BAR_EVERY if over else LINE_EVERY)
        if notebook is not None:
            shown = {"text/plain": line}
            if self._handle is None:
                self._handle = notebook.display(shown, raw=True, display_id=True)
            else:
                self._handle.update(shown, raw=True)
        elif over:
            sys.stderr.write("\r" + line.ljust(len(self._last)))
            sys.stderr.flush()
        else:
            sys.stderr.write(line + "\n")
        self._last = line


def _line(name: str, progress: Any) -> str:
    done = round(BAR * progress.fraction)
    row = progress.row or {}
    loss = row.get("train_loss", row.get("batch_loss", math.nan))
    # The newest evaluation may be an older one: the first stands at iteration 0.
    at = row.get("iteration", progress.iteration)
    behind = f" at iteration {at:.0f}" if at != progress.iteration else ""
    left = f"{progress.left:.0f} s left" if math.isfinite(progress.left) else ""
    words = [
        f"{name} [{'#' * done}{'.' * (BAR - done)}] {progress.fraction:4.0%}",
        f"iteration {progress.iteration} of {progress.iterations}",
        f"{progress.seconds:.4g} simulated s",
        f"loss {loss:.4g}{behind}" if math.isfinite(loss) else "",
        left if progress.fraction < 1 else "done",
    ]
    return "  ".join(word for word in words if word)


def _notebook() -> Any:
    """IPython's display, if this runs in a notebook's kernel; None elsewhere."""
    shell = sys.modules.get("IPython")
    interpreter = shell.get_ipython() if shell is not None else None
    if interpreter is None or not hasattr(interpreter, "kernel"):
        return None
    return importlib.import_module("IPython.display")
