"""From a config to a result: data, model and network are made, then one simulation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import networkx as nx
import numpy as np
from torch import nn

from sdfeel.algorithm.trainer import Trainer
from sdfeel.api import Result, carry_out
from sdfeel.data import ClientSource, load, partition
from sdfeel.errors import InputError, located
from sdfeel.experiments.brought import Brought, bring_data, bring_loss, bring_model, bring_trainers
from sdfeel.experiments.config import DataConfig, GraphTurn, NetworkConfig, RunConfig
from sdfeel.models import build
from sdfeel.network import ChangingNetwork, Clusters, Network, build_graph, read_graph
from sdfeel.network.graphs import as_graph
from sdfeel.simulation.evaluation import Samples, subset
from sdfeel.simulation.listening import Progress
from sdfeel.simulation.simulation import Simulation
from sdfeel.trees import rows


def run(
    config: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_ask: Callable[[str], None] = lambda _: None,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Carry out one run; `on_ask` is told when a Flower app is asked how much data it has."""
    trainers: Sequence[Trainer] | None = None
    if config.settings.flower is None:
        simulation = simulation_of(config)
        if config.trainers is not None:
            trainers = bring_trainers(config.trainers, simulation)
    elif config.trainers is not None:
        raise InputError("trainers", config.trainers, "the Flower app of `trainer` trains already")
    else:
        simulation, trainers = _with_flower(config, out, resume, on_ask)
    if simulation.ranks.size > 1:
        _dataset.cache_clear()  # a rank holds the data of its own clients
        _brought.cache_clear()
    return carry_out(
        simulation,
        out=out,
        resume=resume,
        config=config.table(),
        trainers=trainers,
        on_start=on_start,
        on_progress=on_progress,
    )


def _with_flower(
    config: RunConfig, out: str | Path | None, resume: bool, on_ask: Callable[[str], None]
) -> tuple[Simulation, Sequence[Trainer]]:
    """Put a Flower app's run together.

    The app has data and metrics of its own. A project's server app says the first model and the
    rounds; else `model` makes it. The model is tested here only on data that the config names.
    """
    from sdfeel.flower.simulate import assemble, planned, saved_samples  # Flower is optional

    network, settings = build_network(config.network), config.settings
    folder = None if config.flower.folder is None else Path(config.flower.folder)
    plan = None
    if config.flower.server is not None:
        settings, plan = planned(settings, config.flower.server, folder or Path(), network.clients)
    data = data_of(config, network.clients) if "name" in config.data.model_fields_set else None
    model = None
    if plan is None or "name" in config.model.model_fields_set:
        model = build_model(config, data)
    return assemble(
        settings,
        network=network,
        model=model,
        initial=None if plan is None else plan.initial,
        samples=saved_samples(out) if resume and out is not None else None,
        loss=bring_loss(config.model.loss),
        test=None if data is None else _tested(config, data),
        plan=plan,
        folder=folder,
        on_ask=on_ask,
    )


def simulation_of(config: RunConfig) -> Simulation:
    """Put together the simulation that a config describes; one without a Flower app."""
    if config.settings.flower is not None:
        remedy = "an app trains by itself, and gradients are needed here: run or compare it"
        raise InputError("trainer", config.table()["trainer"], remedy)
    network = build_network(config.network)
    data = data_of(config, network.clients)
    return Simulation.assemble(
        build_model(config, data),
        _client_source(config, data, network.clients),
        config.settings,
        network=network,
        loss=bring_loss(config.model.loss),
        test=_tested(config, data),
    )


def _tested(config: RunConfig, data: Brought) -> Samples | None:
    return None if data.test is None else subset(data.test, config.evaluation.test_samples)


def data_of(config: RunConfig, clients: int) -> Brought:
    """Return a data set of ours by name, or what the user's function gives."""
    chosen, seed = config.data, _seed(config)
    if ":" in chosen.name:
        return _brought(chosen.name, json.dumps(chosen.arguments, default=str), clients, seed)
    if chosen.arguments:
        remedy = "go with a function: data.name = my_file:load"
        raise InputError("data.arguments", chosen.arguments, remedy)
    return _dataset(chosen.name)


def _seed(config: RunConfig) -> int:
    """Return the seed of the data: the run's own unless it is set."""
    return config.settings.seed if config.data.seed is None else config.data.seed


@lru_cache(maxsize=1)
def _dataset(name: str) -> Brought:
    """Read and check it once for all runs of a comparison."""
    return Brought.of_dataset(load(name))


@lru_cache(maxsize=1)
def _brought(name: str, arguments: str, clients: int, seed: int) -> Brought:
    """Do the same with a function; arguments as JSON, which can be looked up."""
    return bring_data(name, json.loads(arguments), clients, seed)


def build_network(config: NetworkConfig) -> Network:
    """Build the network: a graph by name or from a file, clusters by size or by list."""
    if config.clusters is None:
        clusters = Network.build("path", config.servers, config.clients_per_server).clusters
    else:
        clusters = Clusters.of(config.clusters)
        if config.servers not in (clusters.servers, NetworkConfig().servers):
            remedy = f"beside clusters of {clusters.servers} servers: leave it out"
            raise InputError("network.servers", config.servers, remedy)
    graph = _graph_of(config, clusters.servers)
    network = Network(clusters, graph, clients_graph=config.clients_graph)
    if config.graphs is None:
        return network
    graphs = [(_graph_of(turn, clusters.servers), turn.rounds) for turn in config.graphs]
    return ChangingNetwork.of(network, graphs)


def _graph_of(config: NetworkConfig | GraphTurn, servers: int) -> nx.Graph:
    if config.links is not None:
        with located("network."):
            return as_graph(config.links, servers)
    if config.graph_file is not None:
        return read_graph(config.graph_file, servers)
    return build_graph(config.graph, servers, **config.options)


def _client_source(config: RunConfig, data: Brought, clients: int) -> ClientSource:
    """Share out the training samples to the clients."""
    if data.is_shared_out:
        if config.data.partition != DataConfig().partition or config.data.concentration is not None:
            remedy = "the function has shared out the data: it gives a list, one for each client"
            raise InputError("data.partition", config.data.partition, remedy)
        return ClientSource.of(data.whole, None, clients, _seed(config))
    options = {}
    if config.data.concentration is not None:
        options["concentration"] = config.data.concentration
    labels = data.whole.targets
    if data.classes is None and config.data.partition != "iid":
        remedy = "goes by labels, and the targets are none: data.partition = iid, or let the "
        remedy += "function give a list of clients' data"
        raise InputError("data.partition", config.data.partition, remedy)
    numbers = labels.numpy() if data.classes is not None else np.zeros(rows(labels), dtype=int)
    parts = partition(config.data.partition, numbers, clients, _seed(config), **options)
    return ClientSource.of(data.whole, parts, clients, _seed(config))


def build_model(config: RunConfig, data: Brought | None) -> nn.Module:
    """Build a model of ours by name, or the user's own by its import path.

    Without data, which a Flower app has of its own, only the latter can be.
    """
    chosen = config.model
    seed = config.settings.seed if chosen.seed is None else chosen.seed
    shape, classes = (None, None) if data is None else (data.shape, data.classes)
    if ":" in chosen.name:
        folder = None if config.flower.folder is None else Path(config.flower.folder)
        return bring_model(chosen.name, chosen.arguments, shape, classes, seed, folder)
    if chosen.arguments:
        remedy = "go with a function: model.name = my_file:build"
        raise InputError("model.arguments", chosen.arguments, remedy)
    if data is None:
        remedy = "is needed: what makes the app's first model, model.name = my_app.task:Net"
        raise InputError("model.name", None, f"{remedy}; or run the project's folder")
    if classes is None or not isinstance(shape, tuple):
        remedy = "our models take one array and labels: name your own, model.name = my_file:build"
        raise InputError("model.name", chosen.name, remedy)
    return build(chosen.name, shape, classes, seed)
