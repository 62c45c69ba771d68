"""What is measured at an evaluation: the loss and metrics of u_k and of the servers' models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.engines.engine import Engine
from sdfeel.errors import InputError
from sdfeel.records.checkpoints import Row
from sdfeel.simulation.state import State
from sdfeel.trees import Tree, mapped, ready, rows

__all__ = [
    "Evaluation",
    "Metric",
    "Row",
    "Samples",
    "accuracy",
    "check_metrics",
    "of_each",
    "some_rows",
    "subset",
    "usual_metrics",
]

# metric(outputs, targets) -> the mean over the samples
Metric = Callable[[Any, Any], float]


def check_metrics(metrics: Mapping[str, Metric] | None) -> None:
    """Raise InputError unless they are functions by name."""
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        remedy = 'functions (outputs, targets) by name, such as {"accuracy": my_accuracy}'
        raise InputError("metrics", metrics, remedy)
    for name, metric in metrics.items():
        if not callable(metric):
            raise InputError(f"metrics[{name!r}]", metric, "a function (outputs, targets)")
        if name == "loss":
            raise InputError("metrics", name, "is the name of the loss in history: take another")


Samples = tuple[Tree, Tree]

# Outputs that the evaluation of all servers together may compute, so that it stays a small part of
# a run with many of them.
SERVER_OUTPUTS = 10_000
# The same for schemes whose servers' models are all there is to evaluate.
EACH_OUTPUTS = 100_000


def accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Share of samples whose largest output is that of their class."""
    return float(_right(outputs, targets).double().mean())


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    classes = targets.argmax(dim=1) if targets.is_floating_point() else targets
    return outputs.argmax(dim=1) == classes


@dataclass(frozen=True)
class _AccuracyOfSome:
    """Accuracy without the labels that a loss ignores."""

    ignored: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> float:
        right = _right(outputs, targets)
        counted = targets != self.ignored
        return float((right if targets.is_floating_point() else right[counted]).double().mean())


def usual_metrics(loss: object, targets: Tree) -> dict[str, Metric]:
    """Accuracy beside cross-entropy with class numbers, however it is written; else nothing."""
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        return {}
    if isinstance(loss, partial):
        loss = loss.func
    if loss in (F.cross_entropy, F.nll_loss):
        return {"accuracy": accuracy}
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return {"accuracy": _AccuracyOfSome(loss.ignore_index)}
    return {}


@lru_cache(4)  # a run asks for the same again, and may have ten million rows
def some_rows(total: int, count: int | None) -> NDArray[np.int64]:
    """Row numbers of a fixed random part of `total` rows, in order; all of them for None."""
    if count is None or count >= total:
        return np.arange(total)
    chosen = np.sort(np.random.Generator(np.random.Philox(0)).permutation(total)[:count])
    chosen.setflags(write=False)
    return chosen


def of_each(servers: int) -> int:
    """Return on how many samples each of so many servers' models is evaluated."""
    return max(1, EACH_OUTPUTS // servers)


def subset(samples: Samples, count: int | None) -> Samples:
    """A fixed random part of the samples, or all of them."""
    inputs, targets = samples
    if count is None or count >= rows(inputs):
        return samples
    chosen = torch.from_numpy(some_rows(rows(inputs), count).copy())
    return mapped(lambda t: t[chosen], inputs), mapped(lambda t: t[chosen], targets)


@dataclass(frozen=True)
class Evaluation:
    """The times and samples of evaluations.

    every    iterations between two evaluations; the last iteration is always evaluated
    train    samples on which the training loss F(u_k) is taken
    test     samples that no client holds
    metrics  by name, beside the loss
    servers  whether each server's model is evaluated as well (min, mean and max over servers)
    others   what somebody else measures of u_k, by name
    """

    every: int = 50
    train: Samples | None = None
    test: Samples | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    servers: bool = True
    others: Callable[[Tensor], Row] | None = None

    def of_servers(self, engine: Engine, state: State, servers: Tensor) -> dict[str, list[float]]:
        """Evaluate each server's model on part of the samples; NaN for one that does not count.

        Empty where servers are not evaluated, or on another process than the leading one.
        """
        if not (state.ranks.leads and self.servers and len(servers) > 1 and self.test):
            return {}
        counted = np.flatnonzero(state.algorithm.counted)
        part = subset(self.test, max(1, SERVER_OUTPUTS // len(counted)))
        numbers: dict[str, list[float]] = {}
        for server in counted:
            for key, value in self._on(engine, servers[server], part):
                numbers.setdefault(key, [math.nan] * len(servers))[server] = value
        return numbers

    def row(
        self,
        engine: Engine,
        state: State,
        mean: Tensor,
        servers: Tensor,
        numbers: Mapping[str, Sequence[float]],
    ) -> Row:
        """The numbers of one evaluation, with those of servers by name."""
        if state.algorithm.scheme.each:
            row = self._of_each(engine, state, mean, servers)
        else:
            row = self._of(engine, state, mean, self.train, self.test)
        row |= self._of_clients(engine, state)
        if not state.ranks.leads:
            return row
        if self.others is not None:
            row = self.others(mean) | row
        weights = state.algorithm.counted
        row["disagreement"] = _disagreement(weights, mean, servers)
        for key, values in numbers.items():
            known = [value for value, weight in zip(values, weights, strict=True) if weight]
            row |= {
                f"server_{key}_min": min(known),
                f"server_{key}_mean": sum(known) / len(known),
                f"server_{key}_max": max(known),
            }
        return row

    def _of(
        self,
        engine: Engine,
        state: State,
        model: Tensor,
        train: Samples | None,
        test: Samples | None,
    ) -> Row:
        """Losses and metrics of one model."""
        row: Row = {}
        if train is not None:
            row |= self._on_all_ranks(engine, state, model, train)
        if test is not None and state.ranks.leads:
            row |= {f"test_{key}": value for key, value in self._on(engine, model, test)}
        return row

    def _of_each(self, engine: Engine, state: State, mean: Tensor, servers: Tensor) -> Row:
        """The weighted mean over the servers' own models of their numbers, on part of the samples.

        The leading process holds them; each is sent round, for the samples of the other ranks.
        """
        weights = state.algorithm.network.shares.cluster
        test = None if self.test is None else subset(self.test, of_each(len(weights)))
        total: Row = {}
        for number, weight in enumerate(weights):
            model = servers[number].clone() if state.ranks.leads else torch.empty_like(mean)
            numbers = self._of(engine, state, state.ranks.broadcast(model), self.train, test)
            _add(total, float(weight), numbers)
        return total

    def _of_clients(self, engine: Engine, state: State) -> Row:
        """Evaluate models that methods keep for clients: on each client's data, and tested.

        The means, weighted by the clients' data.
        """
        names = [name for name, row in state.algorithm.rows.items() if row.is_model]
        if not names:
            return {}
        weights, data = state.algorithm.network.shares.client, engine.problem.data
        place = {int(client): at for at, client in enumerate(engine.problem.client_ids)}
        test = None if self.test is None else subset(self.test, of_each(len(weights)))
        row: Row = {}
        for name in names:
            short, total = name.rpartition(".")[2], Row()
            for client, model in zip(state.ranks.clients, state.clients[name], strict=True):
                whole = torch.cat([model, state.model_of(int(client))[len(model) :]])
                samples = data.client(place[int(client)])
                numbers = {f"train_{k}": v for k, v in self._on(engine, whole, samples)}
                if test is not None:
                    numbers |= {f"test_{k}": v for k, v in self._on(engine, whole, test)}
                _add(total, float(weights[client]), numbers)
            row |= {f"{short}_{key}": state.ranks.total(value) for key, value in total.items()}
        return row

    def _on_all_ranks(self, engine: Engine, state: State, model: Tensor, samples: Samples) -> Row:
        """The means over the training samples of all ranks: each holds its own clients' only."""
        here = rows(samples[0])
        everywhere = state.ranks.total(here)
        names = ["loss", *self.metrics]
        numbers = dict(self._on(engine, model, samples)) if here else dict.fromkeys(names, 0.0)
        if everywhere == here:
            return {f"train_{name}": numbers[name] for name in names}
        return {
            f"train_{name}": state.ranks.total(numbers[name] * here) / everywhere for name in names
        }

    def _on(self, engine: Engine, model: Tensor, samples: Samples) -> list[tuple[str, float]]:
        outputs, targets = engine.predict(model, samples[0]), ready(samples[1])
        values = [("loss", float(engine.problem.loss(outputs, targets)))]
        for name, metric in self.metrics.items():
            try:
                values.append((name, float(metric(outputs, targets))))
            except Exception as problem:
                problem.add_note(f"from the metric {name!r}")
                raise
        return values


def _add(total: Row, weight: float, numbers: Row) -> None:
    for name, value in numbers.items():
        total[name] = total.get(name, 0.0) + weight * value


def _disagreement(shares: NDArray[np.float64], mean: Tensor, servers: Tensor) -> float:
    """Root of sum m-tilde_d ||y_d - u||^2: how far the servers are from each other."""
    weights = torch.from_numpy(shares).to(servers.device)
    squares = (servers.double() - mean.double()).square().sum(dim=1)
    return float((weights @ squares).sqrt())
