"""What training gives back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from sdfeel.engines.choose import ChosenEngine
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError
from sdfeel.records.checkpoints import save_models
from sdfeel.records.folder import RunFolder
from sdfeel.simulation.loop import Run
from sdfeel.simulation.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What a summary holds beyond the last numbers, so that `sdfeel.load` gives back the whole.
KEPT = ("engine_reason", "client_steps", "elapsed", "server_of", "stopped")


@dataclass(frozen=True)
class Models:
    """The models of a run at an evaluation, for callbacks.

    mean     u_k: the weighted mean of the servers' models
    servers  each server's own; client(i): what a client holds
    """

    iteration: int
    mean: nn.Module
    _servers: Tensor = field(repr=False)  # D x M
    _server_of: Sequence[int] = field(repr=False)

    @classmethod
    def of(cls, simulation: Simulation, iteration: int, mean: Tensor, servers: Tensor) -> Models:
        """Make models of vectors."""
        problem, clusters = simulation.problem, simulation.algorithm.network.clusters
        whole = problem.layout.module(problem.model, mean).eval()
        return cls(iteration, whole, servers, clusters.server_of.tolist())

    @cached_property
    def servers(self) -> list[nn.Module]:
        """Each edge server's own model."""
        layout = ParameterLayout.of(self.mean)
        return [layout.module(self.mean, vector) for vector in self._servers]

    def client(self, client: int) -> nn.Module:
        """The model that a client begins its next upload period with: its server's, eq. (4)."""
        is_whole = isinstance(client, int | np.integer) and not isinstance(client, bool)
        if not is_whole or not 0 <= client < len(self._server_of):
            raise InputError("client", client, f"a number from 0 to {len(self._server_of) - 1}")
        vector = self._servers[self._server_of[client]]
        return ParameterLayout.of(self.mean).module(self.mean, vector)


@dataclass(repr=False)
class Result:
    """The result of training.

    model          the global model, the weighted mean u_K, in evaluation mode
    server_models  each edge server's own model; client_model(i): what a client holds
    history        a pandas DataFrame, one row an evaluation
    stopped        whether a callback ended it before its last iteration
    config         what it was started with
    network        who belonged to whom and who were neighbours, as network.json says it
    environment    of it what is known: all in one that was loaded, else how its engine was made

    `save` writes it into a folder, from which `sdfeel.load` gives it back.

    >>> result = sdfeel.train(model, data, network=network, steps=4)
    >>> len(result.server_models)
    2
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
    servers: Tensor = field(repr=False)  # D x M
    server_of: Sequence[int] = field(repr=False)  # the server of each client
    stopped: bool = False
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    network: Mapping[str, Any] = field(default_factory=dict, repr=False)
    environment: Mapping[str, Any] = field(default_factory=dict, repr=False)
    leads: bool = True  # False at the ranks that only help: their history is not complete
    folder: Path | None = None
    signal: int | None = None  # that ended it early

    @classmethod
    def of(
        cls,
        run: Run,
        simulation: Simulation,
        choice: ChosenEngine,
        config: Mapping[str, Any],
    ) -> Result:
        """Make a result of a run that has ended."""
        problem, about = simulation.problem, choice.engine.about()
        return cls(
            model=problem.layout.module(problem.model, run.state.mean()).eval(),
            history=pd.DataFrame(run.history.rows).astype({"iteration": int}),
            scheme=simulation.algorithm.scheme.name,
            engine=choice.engine.name,
            engine_reason=choice.reason,
            iterations=run.k,
            seconds=run.seconds,
            client_steps=run.client_steps,
            elapsed=run.elapsed,
            phases=run.phases,
            interrupted=run.is_interrupted,
            servers=run.state.all_servers(),
            server_of=simulation.algorithm.network.clusters.server_of.tolist(),
            stopped=run.is_stopped,
            config=config,
            network=simulation.drawn(),
            environment={"engine": dict(about)} if about else {},
            leads=simulation.ranks.leads,
        )

    def __repr__(self) -> str:
        row = self.history.iloc[-1]
        numbers = [
            f"{name.replace('_', ' ')} {row[name]:.4g}"
            for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")
            if name in row and not math.isnan(row[name])
        ]
        ended = "interrupted at" if self.interrupted else "stopped at" if self.stopped else "after"
        return (
            f"Result of {self.scheme} {ended} {self.iterations} iterations and {self.seconds:.4g} "
            f"simulated s: {', '.join(numbers)} (engine {self.engine}, {self.elapsed:.3g} real s)"
        )

    @cached_property
    def _models(self) -> Models:
        return Models(self.iterations, self.model, self.servers, self.server_of)

    @property
    def server_models(self) -> list[nn.Module]:
        return self._models.servers

    def client_model(self, client: int) -> nn.Module:
        """The model that a client begins its next upload period with: its server's, eq. (4)."""
        return self._models.client(client)

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
        """Loss and metrics over simulated time; written to `path` too if one is given.

        A notebook shows what comes back. "c.png" is written beside "c.svg", "c.pdf" alone.
        """
        from sdfeel.reports.figures import figure_of_metrics, save_figure  # takes a while

        figure = figure_of_metrics({self.scheme: self.history})
        if path is not None:
            save_figure(figure, Path(path))
        return figure

    def _repr_html_(self) -> str:
        from sdfeel.reports.notebook import shown

        return shown(pd.DataFrame([self.summary()]), self.plot())

    def keep(self, folder: RunFolder) -> None:
        """Leave models and summary in the folder of the run."""
        self.folder, self.signal = folder.path, folder.signal
        if not self.leads:
            return
        self._write(folder)

    def save(self, folder: str | Path) -> Path:
        """Write all but checkpoint and trace into a folder of its own, as `out=` leaves it."""
        target = RunFolder(folder, "")
        if (target.path / "run.json").exists():
            raise InputError("folder", str(folder), "holds a run already: name another one")
        target.create(dict(self.config), resume=False, known=self.environment)
        if self.network:  # one of an earlier version has none
            target.write_json("network.json", dict(self.network))
        columns = [str(name) for name in self.history]
        rows = self.history.itertuples(index=False, name=None)
        target.write_rows([dict(zip(columns, row, strict=True)) for row in rows])
        self._write(target)
        return target.path

    def _write(self, folder: RunFolder) -> None:
        """The model as `load_state_dict` wants it: frozen and tied weights and counters too."""
        whole = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        save_models(folder.path / "model.safetensors", whole)
        save_models(folder.path / "servers.safetensors", {"servers": self.servers})
        fields = {name: getattr(self, name) for name in KEPT}
        phases = {"phases": dict(self.phases)}
        folder.write_json("summary.json", {**self.summary(), **fields, **phases})
