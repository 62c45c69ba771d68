"""The history of a run: its rows, the losses since the last of them, and what is no number."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.events import Event
from sdfeel.errors import DivergedError
from sdfeel.records.checkpoints import Checkpoint, Row
from sdfeel.simulation.training import Trained


class History:
    """Rows of the evaluations, by iteration.

    every       iterations between two regular rows
    batch_loss  the sum of the mean losses of batches since the last regular row, over `batch_count`
                local steps
    """

    def __init__(self, every: int) -> None:
        self.every = every
        self.rows: list[Row] = []
        self.batch_loss, self.batch_count = 0.0, 0

    def is_due(self, k: int) -> bool:
        """Return whether an event that ends at iteration k gets a row."""
        return k // self.every > int(self.rows[-1]["iteration"]) // self.every

    @property
    def is_regular(self) -> bool:
        """Whether the last row is due by `every`, and not there only because the run ends."""
        last, *before = (int(row["iteration"]) for row in reversed(self.rows[-2:]))
        return last // self.every > (before[0] if before else -1) // self.every

    def add(self, row: Row) -> None:
        """Add a row; it replaces one of the same iteration.

        The slowest group may stand still while others go on: then the newer row counts.
        """
        is_newer = bool(self.rows) and self.rows[-1]["iteration"] == row["iteration"]
        self.rows = [*(self.rows[:-1] if is_newer else self.rows), row]

    def saved(self, is_now: bool) -> dict[str, Any]:
        """Return the fields of a checkpoint; `is_now`: whether the last row is of this moment.

        A row that is there only because the run ends is made again if it ends there again.
        """
        rows = self.rows[:-1] if is_now and not self.is_regular else self.rows
        return {"rows": rows, "batch_loss": self.batch_loss, "batch_count": self.batch_count}

    def restore(self, start: Checkpoint) -> None:
        """Go on from a checkpoint."""
        self.rows = list(start.rows)
        self.batch_loss, self.batch_count = start.batch_loss, start.batch_count

    def begin_anew(self) -> None:
        """Forget the losses that the last row has told."""
        self.batch_loss, self.batch_count = 0.0, 0

    def count(self, window: Sequence[Event], trained: Trained, here: Container[int]) -> int:
        """Count the losses of the groups that this process holds.

        Returns:
            The local updates of all clients.
        """
        begin = updates = 0
        for event in window:
            groups = [group for group in event.groups if len(group.clients)]
            clients = sum(len(group.clients) for group in groups if group.number in here)
            losses = trained.losses[begin : begin + clients]
            begin += clients
            steps = np.concatenate([np.zeros(0, int), *(g.last - g.first + 1 for g in groups)])
            self._count_losses(losses, steps)
            updates += int(steps.sum())
        return updates

    def _count_losses(
        self, losses: Sequence[NDArray[np.float64]], steps: NDArray[np.int64]
    ) -> None:
        """Add up, for each local step of an event, the mean over the clients that made it.

        Sums are exact, so that where a run was cut into calls does not show in the last bits.
        """
        self.batch_count += int(steps.max(initial=0))
        for number in range(max(map(len, losses), default=0)):
            made = [of_client[number] for of_client in losses if len(of_client) > number]
            self.batch_loss += math.fsum(made) / int((steps > number).sum())


def refuse_bad_losses(
    trained: Trained, window: Sequence[Event], here: Container[int], rescue: str
) -> None:
    """Raise DivergedError for the earliest loss that is not a number."""
    if not trained.losses or np.isfinite(np.concatenate(trained.losses)).all():
        return
    groups = [group for event in window for group in event.groups if group.number in here]
    clients = [int(client) for group in groups for client in group.clients]
    first = [int(k) for group in groups for k in group.first]
    bad = []
    for client, begin, losses in zip(clients, first, trained.losses, strict=True):
        bad += [
            (begin + int(at), client, losses[at]) for at in np.flatnonzero(~np.isfinite(losses))
        ]
    k, client, loss = min(bad, key=lambda each: each[:2])
    raise DivergedError(
        f"the loss of client {client} became {loss} at iteration {k}{rescue}. A smaller lr may "
        "help, or look at that client's data."
    )


def refuse_bad_models(tensors: Mapping[str, Tensor], k: int, rescue: str) -> None:
    """Raise DivergedError for the first model, or row of a method, that is not finite."""
    for name, rows in tensors.items():
        if not bool(rows.isfinite().all()):
            number = int((~rows.isfinite().all(dim=1)).nonzero()[0])
            raise DivergedError(
                f"{name} {number} is no longer finite at iteration {k}{rescue}. "
                "A smaller lr may help."
            )
