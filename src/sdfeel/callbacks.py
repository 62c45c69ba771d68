"""Callbacks: who is told how a run goes, and may end it.

    class Mine(sdfeel.callbacks.Callback):
        def on_row(self, row):
            print(row["iteration"], row["train_loss"])
            return row["train_loss"] < 0.1      # True ends the run here

    sdfeel.train(..., callbacks=[Mine(), sdfeel.callbacks.EarlyStopping("test_loss", patience=3)])

Packages of others are imported when a callback that needs them is made.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError, closest
from sdfeel.validation import whole_number

__all__ = ["CSV", "All", "Callback", "EarlyStopping", "MLflow", "ProgressBar", "TensorBoard"]
__all__ += ["WandB", "check_callbacks"]

# Real seconds between two lines: of a bar that is drawn over, and where lines stay.
BAR_EVERY, LINE_EVERY = 0.2, 10.0
BAR = 24  # characters
LONGEST = 500  # characters of a setting that a tracker is told

Row = Mapping[str, float]


class Callback:
    """Told of a run, in one process; every method does nothing by default.

    `on_row`, `on_models` and `on_period` may answer True: the run ends there, with a last
    evaluation, a whole result and, in a folder, a checkpoint. What a callback raises ends the run
    as well, without a result; the last checkpoint stays.
    """

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """Hear of a run before its first step: its settings, and rows where it is resumed."""

    def on_row(self, row: Row) -> bool | None:
        """Hear of an evaluation: `iteration`, `seconds` (simulated), losses and metrics by name."""

    def on_models(self, models: Any) -> bool | None:
        """Look at the models after an evaluation; only a callback that has this method is called.

        `models.mean`, `models.servers[d]` and `models.client(i)` are modules, copies to keep.
        """

    def on_period(self, progress: Any) -> bool | None:
        """Hear that an upload period has ended (every tau1 iterations).

        With the asynchronous pace: where some servers, no one twice, have taken their clients.
        """

    def on_end(self, result: Any) -> None:
        """Hear that a run ended, by itself, by a callback or by a signal."""

    def on_failure(self, problem: BaseException) -> None:
        """Hear of the error that ended a run. What this method raises is ignored."""

    def close(self) -> None:
        """Let go of files, also where the run failed. Called before `on_end`."""


def check_callbacks(callbacks: Any) -> None:
    """Raise InputError unless they are callbacks."""
    if not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise InputError("callbacks", callbacks, "a list, such as [EarlyStopping(patience=5)]")
    for number, each in enumerate(callbacks):
        if not isinstance(each, Callback):
            raise InputError(
                f"callbacks[{number}]", each, "an object of a subclass of sdfeel.callbacks.Callback"
            )


class All(Callback):
    """Several as one; what one of them raises says from which it is."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = list(callbacks)

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self._tell("on_start", about, rows)

    def on_row(self, row: Row) -> bool:
        return self._tell("on_row", row)

    @property
    def wants_models(self) -> bool:
        """Whether any callback has `on_models`."""
        return any(type(each).on_models is not Callback.on_models for each in self._callbacks)

    def on_models(self, models: Any) -> bool:
        return self._tell("on_models", models)

    def on_period(self, progress: Any) -> bool:
        return self._tell("on_period", progress)

    def on_end(self, result: Any) -> None:
        self._tell("on_end", result)

    def on_failure(self, problem: BaseException) -> None:
        for each in self._callbacks:
            with suppress(Exception):  # the run's own error is the one to be seen
                each.on_failure(problem)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, method: str, *news: Any) -> bool:
        """Call all of them, also after one has asked for the end of the run."""
        answers = []
        for each in self._callbacks:
            try:
                answers.append(getattr(each, method)(*news))
            except Exception as problem:
                problem.add_note(f"from {method} of the callback {type(each).__name__}")
                raise
        return any(answer is True for answer in answers)


class EarlyStopping(Callback):
    """Ends a run once a column of the history has not improved for so many evaluations.

    column    as in `Result.history`
    patience  evaluations without an improvement
    least     by how much a value must be better to count
    largest   whether larger is better; by default where the name ends with accuracy
    """

    def __init__(
        self,
        column: str = "test_loss",
        patience: int = 5,
        least: float = 0.0,
        largest: bool | None = None,
    ) -> None:
        remedy = "a whole number of evaluations, at least 1"
        patience = whole_number(patience, remedy=remedy, field="patience")
        if not isinstance(column, str):
            raise InputError("column", column, "the name of a column, such as 'test_loss'")
        if not isinstance(least, int | float) or not least >= 0:
            raise InputError("least", least, "a number, 0 or more")
        self.column, self.patience, self.least = column, patience, least
        self.largest = column.endswith("accuracy") if largest is None else largest
        self._best, self._since = math.inf, 0

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._best, self._since = math.inf, 0
        for row in rows:
            self.on_row(row)

    def on_row(self, row: Row) -> bool:
        if self.column not in row:
            raise InputError("column", self.column, f"not measured; {closest(self.column, row)}")
        value = -row[self.column] if self.largest else row[self.column]
        if value < self._best - self.least:
            self._best, self._since = value, 0
        else:
            self._since += 1
        return self._since >= self.patience


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


class CSV(Callback):
    """Every row into a CSV file as it comes; the file is whole at any time."""

    def __init__(self, path: str | Path) -> None:
        self.path, self._rows = Path(path), list[dict[str, float]]()

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._rows = [dict(row) for row in rows]

    def on_row(self, row: Row) -> None:
        from sdfeel.files import write_report
        from sdfeel.records.folder import metrics_csv

        self._rows.append(dict(row))
        write_report(self.path, metrics_csv(self._rows).encode())


class TensorBoard(Callback):
    """Every column as a scalar over iterations, and the settings as hyperparameters.

    `tensorboard --logdir FOLDER` shows both. A run that is resumed writes all its rows again, in
    place of those that the folder has.
    """

    def __init__(self, folder: str | Path = "runs/tensorboard") -> None:
        self._make = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.folder = Path(folder)
        self._writer: Any = None
        self._settings: dict[str, bool | float | str] = {}
        self._ending: Any = None  # what marks the hyperparameters' session as ended

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self._writer = self._make(str(self.folder), purge_step=0 if rows else None)
        self._settings, self._ending = dict(_flat(about)), None
        for row in rows:
            self.on_row(row)

    def on_row(self, row: Row) -> None:
        if self._ending is None:
            make = _imported("torch.utils.tensorboard.summary", "tensorboard").hparams
            experiment, begin, self._ending = make(self._settings, dict(row))
            for summary in (experiment, begin):
                self._writer.file_writer.add_summary(summary)
        for name, value in _values(row).items():
            self._writer.add_scalar(name, value, int(row["iteration"]))

    def close(self) -> None:
        if self._writer is not None:
            if self._ending is not None:
                self._writer.file_writer.add_summary(self._ending)
            self._writer.close()
            self._writer = None


class MLflow(Callback):
    """Settings as parameters and every column as a metric of a run of MLflow, FAILED where it did.

    options  for `mlflow.start_run`, such as run_name=

    Inside a run of yours it is a nested one. A run that is resumed tells all its rows to a new one;
    with run_id= only what is new.
    """

    def __init__(self, **options: Any) -> None:
        self._mlflow, self._options = _imported("mlflow", "mlflow"), options
        self._open, self._status = False, "FINISHED"

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        inside = self._mlflow.active_run() is not None
        self._mlflow.start_run(**{"nested": inside, **self._options})
        self._open, self._status = True, "FINISHED"
        if rows and "run_id" in self._options:  # which has its parameters, and the rows of before
            return
        self._mlflow.log_params({name: str(value)[:LONGEST] for name, value in about.items()})
        for row in rows:
            self.on_row(row)

    def on_row(self, row: Row) -> None:
        self._mlflow.log_metrics(_values(row), step=int(row["iteration"]))

    def on_failure(self, problem: BaseException) -> None:
        self._status = "FAILED" if isinstance(problem, Exception) else "KILLED"

    def close(self) -> None:
        if self._open:
            self._open = False
            self._mlflow.end_run(self._status)


class WandB(Callback):
    """Every column to Weights & Biases: into ./wandb alone, unless mode="online" is said.

    options  for `wandb.init`, such as project=

    A run that is resumed tells all its rows to a new one; with id= only what is new.
    """

    def __init__(self, **options: Any) -> None:
        self._wandb, self._options = _imported("wandb", "wandb"), {"mode": "offline", **options}
        self._run: Any = None
        self._exit_code = 0

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        self._run = self._wandb.init(config=dict(about), **self._options)
        self._exit_code = 0
        for row in rows if "id" not in self._options else ():
            self.on_row(row)

    def on_row(self, row: Row) -> None:
        self._run.log(_values(row), step=int(row["iteration"]))

    def on_failure(self, problem: BaseException) -> None:  # noqa: ARG002
        self._exit_code = 1

    def close(self) -> None:
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=self._exit_code)


def _flat(about: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float | str]]:
    """Settings as hyperparameters have them: tables by dotted names, the rest as text."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float | str):
            yield f"{prefix}{name}", value
        else:
            yield f"{prefix}{name}", str(value)[:LONGEST]


def _values(row: Row) -> dict[str, float]:
    """Return the numbers of a row that were measured: the first has no mini-batch loss yet."""
    return {n: float(v) for n, v in row.items() if n != "iteration" and math.isfinite(v)}


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            "callbacks", package, f"is not installed: `pip install {package}`"
        ) from None
