"""What a file names by import path (data, model, loss, trainers): what is called, what it gives.

    trainers = "my_file:trainer"     # trainer(client, inputs, targets, model) -> sdfeel.Trainer

    [data]
    name = "my_file:load"            # load(**arguments); also clients and seed, if it takes them
    arguments = {path = "x.npz"}

    [model]
    name = "my_file:build"           # build(shape, classes, **arguments), or build(**arguments)
    arguments = {width = 64}
    loss = "my_file:loss"            # loss(outputs, targets), the mean over a batch

`load` returns (train, test). `train` is a pair of arrays (inputs, targets) or a map-style dataset,
which `data.partition` shares out to the clients; or a list with one of these for each client.
`test` is a pair of arrays or a dataset that no client holds, or None. `build` returns an
`nn.Module`; it is called with the seed set, so that w_0 is a function of it. `shape` is that of a
sample (a structure of shapes where inputs are one), `classes` the number of labels, None where
targets are no labels.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sdfeel.algorithm.trainer import Trainer
from sdfeel.data import ClientData, Dataset
from sdfeel.errors import InputError, located
from sdfeel.importing import imported
from sdfeel.simulation.evaluation import Samples
from sdfeel.trees import Tree, mapped

if TYPE_CHECKING:
    from sdfeel.simulation.simulation import Simulation


@dataclass(frozen=True, eq=False)
class Brought:
    """Data as a run takes it.

    shape          of a sample
    classes        how many labels there are; None where targets are no labels
    is_shared_out  the function says what each client holds; else `whole` is one store for all
    """

    whole: ClientData
    test: Samples | None
    shape: Any
    classes: int | None
    is_shared_out: bool = False

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> Brought:
        """Take a data set of ours."""
        ends = np.array([0, len(dataset.train_targets)])
        whole = ClientData(dataset.train_pixels, dataset.train_targets, ends)
        test = (dataset.test_pixels, dataset.test_targets)
        return cls(whole, test, dataset.shape, dataset.classes)


def bring_data(name: str, arguments: Mapping[str, Any], clients: int, seed: int) -> Brought:
    """Call the user's function, and check what it gives."""
    function = imported("data.name", name)
    also = {"clients": clients, "seed": seed}
    taken = set(signature.parameters) if (signature := _signature(function)) else set()
    named = {key: value for key, value in also.items() if key in taken} | dict(arguments)
    pair = _call("data.name", name, function, (), named)
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        shown = type(pair).__name__
        raise InputError("data.name", name, f"must return (train, test), not {shown}")
    train, test = pair
    samples = None
    if test is not None:
        tested = _read("test", name, [test])
        samples = (tested.inputs, tested.targets)
    is_shared_out = isinstance(train, list)
    if is_shared_out and len(train) != clients:
        remedy = f"gives data for {len(train)} clients; there are {clients}"
        raise InputError("data.name", name, remedy)
    whole = _read("train", name, train if is_shared_out else [train])
    return Brought(whole, samples, *_about(whole), is_shared_out)


def bring_model(
    name: str,
    arguments: Mapping[str, Any],
    shape: Any,
    classes: int | None,
    seed: int,
    beside: Path | None = None,
) -> nn.Module:
    """Make the user's network, its first values a function of the seed.

    Without data there is no shape, and the function is called without one.
    """
    factory = imported("model.name", name, beside)
    usual = () if shape is None else (shape, classes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _call("model.name", name, factory, usual, arguments)
    if not isinstance(model, nn.Module):
        raise InputError("model.name", name, "the function must return a torch.nn.Module")
    return model


def bring_loss(path: str | None) -> Any:
    """Return the user's loss; None for cross-entropy."""
    return None if path is None else imported("model.loss", path)


def bring_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the user's averager and methods in place of their import paths.

    Only a file that the user names is read like this: what a run's folder or a message says is
    never imported.
    """
    settings, averager, methods = dict(given), given.get("averager"), given.get("methods")
    if isinstance(averager, str) and ":" in averager:
        settings["averager"] = imported("averager", averager)
    if isinstance(methods, list):
        settings["methods"] = [
            _call("methods", each, imported("methods", each), (), {})
            if isinstance(each, str)
            else each
            for each in methods
        ]
    return settings


def bring_trainers(path: str, simulation: Simulation) -> list[Trainer]:
    """Call the user's function once for each client, with its samples and a model of its own."""
    function, problem = imported("trainers", path), simulation.problem
    trainers = []
    for client in range(problem.data.clients):
        inputs, targets = problem.data.client(client)
        model = copy.deepcopy(problem.model)
        trainers.append(_call("trainers", path, function, (client, inputs, targets, model), {}))
    return trainers


def _read(what: str, name: str, datasets: Sequence[Any]) -> ClientData:
    with located(f"data.name {name}: {what}: "):
        return ClientData.from_datasets(datasets)


def _about(data: ClientData) -> tuple[Any, int | None]:
    """Return the shape of a sample and the number of labels."""
    shapes: Tree = mapped(lambda tensor: tuple(tensor.shape[1:]), data.inputs)
    labels = data.targets
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        return shapes, None
    return shapes, int(labels.max()) + 1


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return None where it is written in C, and nothing is known of it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _call(
    field: str,
    name: str,
    function: Callable[..., Any],
    usual: tuple[Any, ...],
    named: Mapping[str, Any],
) -> Any:
    """Call the user's function with the usual arguments before the named ones, or without."""
    signature, reasons = _signature(function), []
    for given in (usual, ()):
        try:
            if signature is not None:
                signature.bind(*given, **named)
            break
        except TypeError as problem:
            reasons.append(str(problem))
    else:
        words = [f"{key}=..." for key in named]
        called = f"function({', '.join(words)})"
        if field == "trainers":
            called = "function(client, inputs, targets, model)"
        elif usual:
            whole = ", ".join(["shape", "classes", *words])
            called = f"function({whole}), here with {usual}, or as {called}"
        also = f"; see {field[:-5]}.arguments" if field.endswith(".name") else ""
        raise InputError(field, name, f"is called as {called}: {reasons[0]}{also}")
    try:
        return function(*given, **named)
    except Exception as problem:
        problem.add_note(f"from {field} = {name!r}")
        raise
