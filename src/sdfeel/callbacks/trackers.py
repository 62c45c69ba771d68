"""Histories elsewhere: a CSV file, TensorBoard, MLflow, and Weights & Biases."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sdfeel.callbacks.callback import Callback, Row
from sdfeel.errors import InputError
from sdfeel.files import write_report
from sdfeel.records.folder import metrics_csv

LONGEST = 500  # characters of a setting that a tracker is told


class CSV(Callback):
    """Every row into a CSV file as it comes; the file is whole at any time."""

    def __init__(self, path: str | Path) -> None:
        self.path, self._rows = Path(path), list[dict[str, float]]()

    def on_start(self, about: Mapping[str, Any], rows: Sequence[Row]) -> None:  # noqa: ARG002
        self._rows = [dict(row) for row in rows]

    def on_row(self, row: Row) -> None:
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
