"""From a config to a result: data, model and network are made, then `sdfeel.train`."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sdfeel.algorithm.averaging import Rule
from sdfeel.algorithm.schedule import Schedule
from sdfeel.api import Result, train
from sdfeel.data import ClientData, ClientSource, Dataset, load, partition
from sdfeel.errors import InputError
from sdfeel.experiments.config import NetworkConfig, RunConfig
from sdfeel.models import build
from sdfeel.network import Network, read_graph
from sdfeel.simulation.evaluation import subset
from sdfeel.simulation.loop import Progress

__all__ = ["build_model", "build_network", "client_data", "run", "schedule_of"]


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Carry out one run."""
    network = build_network(config.network)
    dataset = _dataset(config.data.name)
    test = (dataset.test_inputs, dataset.test_targets)
    return train(
        build_model(config, dataset),
        client_data(config, dataset, network.clients),
        network=network,
        schedule=schedule_of(config),
        scheme=config.scheme,
        steps=config.steps,
        until=math.inf if config.until is None else config.until,
        lr=config.lr,
        batch_size=config.batch_size,
        seed=config.seed,
        test=subset(test, config.evaluation.test_samples),
        averager=config.averager,
        participation=config.schedule.participation,
        averaging_rule=_rule(config),
        profile=config.clock.profile,
        engine=config.engine,
        device=config.device,
        evaluate_every=config.evaluation.every,
        train_samples=config.evaluation.train_samples,
        evaluate_servers=config.evaluation.servers,
        out=out,
        resume=resume,
        checkpoint_seconds=config.checkpoint_seconds,
        config=config.model_dump(),
        on_start=on_start,
        on_progress=on_progress,
    )


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    """The runs of a comparison read and check it once."""
    return load(name)


def _rule(config: RunConfig) -> Rule | None:
    """None for the mean: the engines have it built in."""
    rule = config.averaging_rule
    return None if rule.name == "mean" else Rule(rule.name, rule.limit, rule.trim)


def schedule_of(config: RunConfig) -> Schedule:
    """The schedule of a config."""
    return Schedule(config.schedule.tau1, config.schedule.tau2, config.schedule.alpha)


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


def client_data(config: RunConfig, dataset: Dataset, clients: int) -> ClientData:
    """The training samples, shared out to the clients."""
    return client_source(config, dataset, clients).take()


def client_source(config: RunConfig, dataset: Dataset, clients: int) -> ClientSource:
    """How the training samples are shared out to the clients."""
    options = {}
    if config.data.concentration is not None:
        options["concentration"] = config.data.concentration
    seed = config.seed if config.data.seed is None else config.data.seed
    labels = dataset.train_targets.numpy()
    parts = partition(config.data.partition, labels, clients, seed, **options)
    whole = ClientData(
        dataset.train_inputs, dataset.train_targets, np.array([0, len(dataset.train_targets)])
    )
    return ClientSource.of(whole, parts, clients, seed)


def build_model(config: RunConfig, dataset: Dataset) -> nn.Module:
    """A model of ours by name, or the user's own by its import path."""
    name = config.model.name
    seed = config.seed if config.model.seed is None else config.model.seed
    if ":" not in name:
        return build(name, dataset.shape, dataset.classes, seed)
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # a module beside the config, as `python -m` finds it
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InputError("model.name", name, f"cannot be imported: {problem}") from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory(dataset.shape, dataset.classes)
    if not isinstance(model, nn.Module):
        raise InputError(
            "model.name", name, f"{attribute}(shape, classes) must return a torch.nn.Module"
        )
    return model
