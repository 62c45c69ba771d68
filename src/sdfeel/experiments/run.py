"""From a config to a result: data, model and network are made, then one simulation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sdfeel.algorithm.trainer import Trainer
from sdfeel.api import Result, carry_out
from sdfeel.data import ClientData, ClientSource, Dataset, load, partition
from sdfeel.errors import InputError
from sdfeel.experiments.config import NetworkConfig, RunConfig
from sdfeel.importing import imported
from sdfeel.models import build
from sdfeel.network import Network, read_graph
from sdfeel.simulation.evaluation import subset
from sdfeel.simulation.loop import Progress
from sdfeel.simulation.simulation import Simulation

__all__ = ["build_model", "build_network", "run", "simulation_of"]


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Carry out one run."""
    trainers: Sequence[Trainer] | None = None
    if config.settings.flower is None:
        simulation = simulation_of(config)
    else:
        simulation, trainers = _with_flower(config)
    if simulation.ranks.size > 1:
        _dataset.cache_clear()  # a rank holds the data of its own clients
    return carry_out(
        simulation,
        out=out,
        resume=resume,
        config=config.table(),
        trainers=trainers,
        on_start=on_start,
        on_progress=on_progress,
    )


def _with_flower(config: RunConfig) -> tuple[Simulation, Sequence[Trainer]]:
    """The app has data of its own; what it trains is `model`, tested on the test samples here."""
    from sdfeel.flower.simulate import assemble  # Flower is optional

    dataset = _dataset(config.data.name)
    test = (dataset.test_inputs, dataset.test_targets)
    return assemble(
        config.settings,
        network=build_network(config.network),
        model=build_model(config, dataset),
        test=subset(test, config.evaluation.test_samples),
    )


def simulation_of(config: RunConfig) -> Simulation:
    """The simulation that a config describes."""
    network = build_network(config.network)
    dataset = _dataset(config.data.name)
    test = (dataset.test_inputs, dataset.test_targets)
    return Simulation.assemble(
        build_model(config, dataset),
        _client_source(config, dataset, network.clients),
        config.settings,
        network=network,
        test=subset(test, config.evaluation.test_samples),
    )


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    """The runs of a comparison read and check it once."""
    return load(name)


def build_network(config: NetworkConfig) -> Network:
    """The network of a config: a graph by name or from a file, clusters by size or by list."""
    if config.clusters is not None:
        graph: Any = config.graph
        if config.graph_file is not None:
            graph = read_graph(config.graph_file, len(config.clusters))
        return Network(config.clusters, graph)
    if config.graph_file is not None:
        sized = Network.build("path", config.servers, config.clients_per_server)
        return Network(sized.clusters, read_graph(config.graph_file, config.servers))
    return Network.build(config.graph, config.servers, config.clients_per_server, **config.options)


def _client_source(config: RunConfig, dataset: Dataset, clients: int) -> ClientSource:
    """How the training samples are shared out to the clients."""
    options = {}
    if config.data.concentration is not None:
        options["concentration"] = config.data.concentration
    seed = config.settings.seed if config.data.seed is None else config.data.seed
    labels = dataset.train_targets.numpy()
    parts = partition(config.data.partition, labels, clients, seed, **options)
    whole = ClientData(
        dataset.train_inputs, dataset.train_targets, np.array([0, len(dataset.train_targets)])
    )
    return ClientSource.of(whole, parts, clients, seed)


def build_model(config: RunConfig, dataset: Dataset) -> nn.Module:
    """A model of ours by name, or the user's own by its import path."""
    name = config.model.name
    seed = config.settings.seed if config.model.seed is None else config.model.seed
    if ":" not in name:
        return build(name, dataset.shape, dataset.classes, seed)
    factory = imported("model.name", name)
    given = _arguments(name, factory, dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory(*given)
    if not isinstance(model, nn.Module):
        raise InputError(
            "model.name", name, "function(shape, classes) must return a torch.nn.Module"
        )
    return model


def _arguments(name: str, factory: Callable[..., Any], dataset: Dataset) -> tuple[Any, ...]:
    """What the user's function takes: (shape, classes), or nothing."""
    choices: tuple[tuple[Any, ...], ...] = ((dataset.shape, dataset.classes), ())
    for given in choices:
        try:
            inspect.signature(factory).bind(*given)
        except TypeError:
            continue
        return given
    raise InputError(
        "model.name",
        name,
        f"is called as function(shape, classes), here with ({dataset.shape}, {dataset.classes}), "
        "or as function()",
    )
