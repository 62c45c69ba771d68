"""What a callback is, several as one, and one that ends a run which gets no better."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from sdfeel.errors import InputError, closest
from sdfeel.validation import whole_number

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
