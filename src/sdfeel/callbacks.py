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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError, closest

__all__ = ["CSV", "All", "Callback", "EarlyStopping", "MLflow", "TensorBoard", "WandB"]
__all__ += ["check_callbacks"]

Row = Mapping[str, float]


class Callback:
    """Told of a run, in one process; every method does nothing by default.

    `on_row` and `on_round` may answer True: the run ends there, with a last evaluation, a whole
    result and, in a folder, a checkpoint. What a callback raises ends the run as well, without a
    result; the last checkpoint stays.
    """

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:
        """Before the first step: the settings, and the rows of a run that is resumed."""

    def on_row(self, row: Row) -> bool | None:
        """After an evaluation: `iteration`, `seconds` (simulated), losses and metrics by name."""

    def on_round(self, progress: Any) -> bool | None:
        """Where an upload period has ended (every tau1 iterations): a `Progress`.

        With the asynchronous pace: where some servers, no one twice, have taken their clients.
        """

    def on_end(self, result: Any) -> None:
        """With the result of a run that ended, or was ended by a callback or signal."""

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

    def on_round(self, progress: Any) -> bool:
        return self._tell("on_round", progress)

    def on_end(self, result: Any) -> None:
        self._tell("on_end", result)

    def close(self) -> None:
        self._tell("close")

    def _tell(self, method: str, *news: Any) -> bool:
        """Everybody is told, whoever wants to end the run."""
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
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise InputError("patience", patience, "a whole number of evaluations, at least 1")
        if not least >= 0:
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
    """Every column as a scalar over iterations: `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: str | Path = "runs/tensorboard") -> None:
        self._make = _imported("torch.utils.tensorboard", "tensorboard").SummaryWriter
        self.folder = Path(folder)
        self._writer: Any = None

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._writer = self._make(str(self.folder))

    def on_row(self, row: Row) -> None:
        for name, value in _values(row).items():
            self._writer.add_scalar(name, value, int(row["iteration"]))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class MLflow(Callback):
    """Settings as parameters and every column as a metric of a run of MLflow.

    options  for `mlflow.start_run`, such as run_name=
    """

    def __init__(self, **options: Any) -> None:
        self._mlflow, self._options = _imported("mlflow", "mlflow"), options
        self._open = False

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._mlflow.start_run(**self._options)
        self._open = True
        self._mlflow.log_params({name: str(value)[:500] for name, value in about.items()})

    def on_row(self, row: Row) -> None:
        self._mlflow.log_metrics(_values(row), step=int(row["iteration"]))

    def close(self) -> None:
        if self._open:
            self._mlflow.end_run()
            self._open = False


class WandB(Callback):
    """Every column to Weights & Biases: into ./wandb alone, unless mode="online" is said.

    options  for `wandb.init`, such as project=
    """

    def __init__(self, **options: Any) -> None:
        self._wandb, self._options = _imported("wandb", "wandb"), {"mode": "offline", **options}
        self._run: Any = None

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._run = self._wandb.init(config=dict(about), **self._options)

    def on_row(self, row: Row) -> None:
        self._run.log(_values(row), step=int(row["iteration"]))

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None


def _values(row: Row) -> dict[str, float]:
    """What was measured: the first row has no mini-batch loss yet."""
    return {n: float(v) for n, v in row.items() if n != "iteration" and math.isfinite(v)}


def _imported(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(
            "callbacks", package, f"is not installed: `pip install {package}`"
        ) from None
