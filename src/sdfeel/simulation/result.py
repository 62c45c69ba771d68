"""What training gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from torch import Tensor, nn

from sdfeel.records.checkpoints import save_models
from sdfeel.records.folder import RunFolder
from sdfeel.simulation.engines.choose import ChosenEngine
from sdfeel.simulation.loop import Outcome
from sdfeel.simulation.problem import Problem
from sdfeel.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result"]


@dataclass
class Result:
    """What training gave.

    model          the global model, the weighted mean u_K
    server_models  each edge server's own model
    history        a pandas DataFrame, one row an evaluation
    """

    model: nn.Module
    history: pd.DataFrame
    scheme: str
    engine: str
    engine_reason: str
    iterations: int
    seconds: float  # simulated
    client_steps: int
    elapsed: float  # real seconds
    phases: Mapping[str, float]
    interrupted: bool
    problem: Problem = field(repr=False)
    servers: Tensor = field(repr=False)  # D x M
    leads: bool = True  # False at the ranks that only help: their history is not complete
    folder: Path | None = None
    signal: int | None = None  # that ended it early

    @classmethod
    def of(cls, outcome: Outcome, simulation: Simulation, choice: ChosenEngine) -> Result:
        """From how the loop ended."""
        problem = simulation.problem
        return cls(
            model=problem.layout.module(problem.model, outcome.mean),
            history=pd.DataFrame(outcome.rows).astype({"iteration": int}),
            scheme=simulation.algorithm.scheme,
            engine=choice.engine.name,
            engine_reason=choice.reason,
            iterations=outcome.iteration,
            seconds=outcome.seconds,
            client_steps=outcome.client_steps,
            elapsed=outcome.elapsed,
            phases=outcome.phases,
            interrupted=outcome.interrupted,
            problem=problem,
            servers=outcome.servers,
            leads=simulation.ranks.leads,
        )

    @cached_property
    def server_models(self) -> list[nn.Module]:
        layout = self.problem.layout
        return [layout.module(self.problem.model, vector) for vector in self.servers]

    @property
    def client_steps_per_second(self) -> float:
        return self.client_steps / self.elapsed if self.elapsed > 0 else 0.0

    def summary(self) -> dict[str, Any]:
        """The end of the run in a few numbers, as `sdfeel run --json` prints them."""
        last = self.history.iloc[-1].to_dict()
        loss = last.get("train_loss", last.get("batch_loss"))
        return {
            "scheme": self.scheme,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "loss": loss,
            "test_loss": last.get("test_loss"),
            "accuracy": last.get("test_accuracy", last.get("train_accuracy")),
            "client_steps_per_second": self.client_steps_per_second,
            "engine": self.engine,
            "interrupted": self.interrupted,
        }

    def plot(self, path: str | Path | None = None) -> Figure:
        """Loss and accuracy over simulated time; written to `path` too if one is given."""
        from sdfeel.reports.figures import figure_over_time, save_figure  # takes a while

        figure = figure_over_time({self.scheme: self.history})
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def keep(self, folder: RunFolder) -> None:
        """Leave models and summary in the folder of the run."""
        self.folder, self.signal = folder.path, folder.signal
        if not self.leads:
            return
        layout = self.problem.layout
        save_models(folder.path / "model.safetensors", layout.split(layout.vector(self.model)))
        save_models(folder.path / "servers.safetensors", {"servers": self.servers})
        folder.write_json("summary.json", {**self.summary(), "phases": dict(self.phases)})
