"""The folder of a run: its config, its environment, its metrics, its checkpoint, its models.

run.json             the full config, as it was resolved
environment.json     versions, machine, seed, git revision
metrics.csv          one row per evaluation; `pandas.read_csv` reads it
network.json, trace.csv   what the live page shows beside them, see `sdfeel.records.trace`
checkpoint.safetensors
model.safetensors    the global model u_K by parameter name; servers.safetensors: each server's
summary.json         how it ended
"""

from __future__ import annotations

import csv
import io
import json
import platform
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sdfeel.errors import InputError
from sdfeel.files import check_writable, write_atomically, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from sdfeel.records.checkpoints import Checkpoint, Row
    from sdfeel.records.trace import Trace

# Settings that a run may be resumed with others of: they do not decide what it computes.
FREE = {"title", "steps", "until", "engine", "device", "evaluation", "checkpoint_seconds"}


class RunFolder:
    """Keeps a run on disk: the loop's `Keeper`.

    every   real seconds between two checkpoints
    writes  False at the ranks that only help: they read the checkpoint and write nothing
    """

    keeps = True
    rescue = "; the last good checkpoint is kept"

    def __init__(
        self, path: str | Path, fingerprint: str, every: float = 60.0, writes: bool = True
    ) -> None:
        self.writes = writes
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.every = every
        self.engine = ""
        self._environment: dict[str, Any] = {}
        self.signal: int | None = None
        self.trace: Trace | None = None
        self._saved = time.monotonic()

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def create(
        self, config: dict[str, Any], resume: bool, known: Mapping[str, Any] | None = None
    ) -> tuple[Checkpoint, str] | None:
        """Make the folder, or open it to go on; None means from the beginning.

        known  what of the environment is not that of this process
        """
        if not self.writes:
            if not self.checkpoint.exists():
                return None
            return self._read(config)
        check_writable(self.path)
        for left_over in self.path.glob(".*.tmp"):
            left_over.unlink(missing_ok=True)
        if self.checkpoint.exists():
            if not resume:
                remedy = (
                    "holds a run already: add --resume to go on with it, or name another folder"
                )
                raise InputError("out", str(self.path), remedy)
            checkpoint = self._read(config)
            self.write_rows(checkpoint[0].rows)
        else:
            checkpoint = None
        self.write_json("run.json", config)
        self._environment = {**environment(config.get("seed")), **(known or {})}
        self.write_json("environment.json", self._environment)
        return checkpoint

    def led_by(self, engine: str, about: Mapping[str, Any]) -> None:
        """Note which engine writes the checkpoints: a resumed run goes on with the same."""
        self.engine = engine
        if self.writes and about:
            self.write_json("environment.json", {**self._environment, "engine": dict(about)})

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        write_json(self.path / name, content)

    def write_rows(self, rows: list[Row]) -> None:
        """The metrics so far, as a whole: the table on disk is always complete."""
        write_atomically(self.path / "metrics.csv", metrics_csv(rows).encode())

    def saw(self, iteration: int, servers: Tensor, numbers: Mapping[str, Sequence[float]]) -> None:
        """The servers' models at an evaluation, and their numbers by name."""
        if self.trace is not None:
            self.trace.note(iteration, servers, numbers)

    def stop(self) -> bool:
        return self.signal is not None

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.every

    def _read(self, config: dict[str, Any]) -> tuple[Checkpoint, str]:
        # PyTorch comes with it: an edge of a deployment has a run folder, and no checkpoint in it.
        from sdfeel.records.checkpoints import read_checkpoint

        changes = changed_settings(self.path / "run.json", config)
        return read_checkpoint(self.checkpoint, self.fingerprint, changes)

    def save(self, checkpoint: Checkpoint) -> None:
        from sdfeel.records.checkpoints import write_checkpoint

        write_checkpoint(self.checkpoint, checkpoint, self.fingerprint, self.engine)
        self._saved = time.monotonic()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """While inside, the first SIGINT or SIGTERM asks the loop to stop; a second one kills."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

        def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            self.signal = number
            for each, handler in before.items():
                signal.signal(each, handler)

        for each in before:
            signal.signal(each, ask)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return sections as dotted keys, `schedule.tau1`, which is how `--set` takes them."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def changed_settings(path: Path, config: Mapping[str, Any]) -> list[str]:
    """What decides a run and is not as the run.json in `path` has it, a sentence for each."""
    try:
        before = flatten(json.loads(path.read_bytes()))
    except (OSError, ValueError, AttributeError, RecursionError):
        return []
    now = flatten(json.loads(json.dumps(config, default=str)))
    return [
        f"{key} was {_shown(before.get(key))}, is {_shown(now.get(key))}"
        for key in dict.fromkeys([*now, *before])
        if before.get(key) != now.get(key) and key.partition(".")[0] not in FREE
    ]


def _shown(value: object) -> str:
    return textwrap.shorten(repr(value), 60, placeholder=" ...")


def metrics_csv(rows: list[Row]) -> str:
    """Rows as CSV; every number reads back as the same float."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "iteration": int(row["iteration"])})
    return text.getvalue()


def environment(seed: object = None) -> dict[str, Any]:
    """Describe what a reader needs to know to get the same numbers again."""
    packages = ("sdfeel", "torch", "numpy", "networkx", "pandas", "safetensors")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "packages": {name: _version(name) for name in packages},
        "git_revision": _git_revision(),
        "seed": seed,
    }


def _version(package: str) -> str | None:
    """Return the version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _git_revision() -> str | None:
    """The revision of sdfeel's own source, if it runs from a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
