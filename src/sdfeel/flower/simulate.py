"""A simulation whose clients are a Flower app.

The app brings its own data, so nothing of it is known here but the number of samples of each
client: its num-examples, which are the weights.
"""

from __future__ import annotations

import copy
import json
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.clock import load_profile
from sdfeel.data import ClientData
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.engines.problem import Loss, Problem
from sdfeel.errors import InputError
from sdfeel.flower.apps import find_app
from sdfeel.flower.client import FlowerClient
from sdfeel.flower.modules import Holder, layout_of, module_of
from sdfeel.flower.rounds import Rounds
from sdfeel.flower.trainer import FlowerTrainer
from sdfeel.network import Network
from sdfeel.simulation.evaluation import Evaluation, Metric, Row, accuracy, check_metrics
from sdfeel.simulation.ranks import Ranks
from sdfeel.simulation.samples import test_samples
from sdfeel.simulation.settings import AUTO, Settings
from sdfeel.simulation.simulation import Simulation

__all__ = ["assemble", "settle"]

logger = logging.getLogger("sdfeel")


def settle(
    given: Mapping[str, Any], network: Network, clients: int | None, rounds: int | None
) -> Settings:
    """The settings of `sdfeel.train(flower=...)`, with the steps of so many rounds."""
    if clients is not None and clients != network.clients:
        raise InputError("clients", clients, f"the network has {network.clients} clients")
    if (rounds is None) == ("steps" not in given):
        raise InputError("rounds", rounds, "one of rounds and steps is needed, not both")
    if rounds is None:
        return Settings.of(given)
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError("rounds", rounds, "a whole number, at least 1")
    settings = Settings.of({**given, "steps": rounds})
    steps = Rounds(settings.scheme.schedule(settings.schedule)).last_iteration(rounds)
    return settings.model_copy(update={"steps": steps})


def assemble(
    settings: Settings,
    *,
    network: Network,
    model: nn.Module | None = None,
    initial: Any = None,
    samples: Sequence[int] | None = None,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
) -> tuple[Simulation, list[FlowerTrainer]]:
    """The simulation, and a trainer for each of the network's clients.

    samples  num-examples of each client; None: each is asked for its `train` once, before
    """
    app = find_app("flower", settings.flower)
    if not isinstance(network, Network):
        raise InputError("network", network, "a sdfeel.Network, such as Network.ring(10, 5)")
    profile = load_profile("paper") if settings.profile == AUTO else settings.latency
    if profile.flops_per_step is None:
        raise InputError("profile", str(settings.profile), "FLOPs of an app cannot be counted")
    check_metrics(metrics)
    module, arrays = module_of(copy.deepcopy(model), initial)
    if test is not None and isinstance(module, Holder):
        raise InputError("test", type(test).__name__, "needs the module: model=Net()")
    layout = ParameterLayout.of(module)
    start = layout.vector(module).clone()
    clients = [
        FlowerClient(app, layout_of(module, arrays), str(n), n, network.clients, _plain(settings))
        for n in range(network.clients)
    ]
    config = _checked("train_config", settings.train_config)
    if samples is None:
        logger.info("asking %d clients for their num-examples", len(clients))
        samples = _ask(clients, start.numpy(), {**config, **_told(settings)})
    held = _counts(samples, network.clients)
    network = network.with_samples(held)
    algorithm = settings.algorithm(network, profile, layout.parameters)
    problem = Problem(
        module,
        layout,
        loss or F.cross_entropy,
        _no_data(held),
        settings.batch_size,
        settings.seed,
        rate=algorithm.rate,
        about=json.dumps([dict(settings.run_config), config], sort_keys=True, default=str),
    )
    rounds = Rounds(algorithm.schedule)
    trainers = [
        FlowerTrainer(
            client,
            int(count),
            algorithm.rate,
            config,
            round_of=lambda first, _: rounds.number(first),
        )
        for client, count in zip(clients, held, strict=True)
    ]
    if metrics is None:
        metrics = {"accuracy": accuracy} if problem.loss is F.cross_entropy else {}
    evaluation = Evaluation(
        every=settings.evaluate_every or max(1, settings.steps // 20),
        test=_test(test, problem),
        metrics=metrics,
        servers=settings.evaluate_servers,
        others=lambda mean: _told_by(trainers, mean),
    )
    ranks = Ranks.of(algorithm.network.clusters)
    simulation = Simulation(
        settings, network, algorithm, problem, profile, start, evaluation, ranks
    )
    return simulation, trainers


def _plain(settings: Settings) -> dict[str, Any]:
    """The run_config: what Flower allows in one."""
    for key, value in settings.run_config.items():
        if not isinstance(value, bool | int | float | str):
            raise InputError(f"run_config[{key!r}]", value, "a number, a word, or true or false")
    return dict(settings.run_config)


def _checked(field: str, config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(ConfigRecord(dict(config)))
    except TypeError as problem:
        said = str(problem).splitlines()[0]
        raise InputError(field, dict(config), f"no config of Flower's: {said}") from None


def _told(settings: Settings) -> dict[str, Any]:
    schedule = settings.scheme.schedule(settings.schedule)
    return {"local-steps": schedule.at(0).tau1, "lr": settings.lr(1)}


def _ask(
    clients: Sequence[FlowerClient], start: NDArray[Any], config: Mapping[str, Any]
) -> list[int]:
    """num-examples of each client by a `train` whose model and state are thrown away."""
    found = []
    with _same_dice():
        for client in clients:
            trial = replace(client, state=RecordDict())
            found.append(trial.train(start.copy(), 1, config).examples)
    return found


@contextmanager
def _same_dice() -> Iterator[None]:
    """What is drawn inside from the usual generators does not show afterwards."""
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 - as apps use it
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002


def _counts(samples: Sequence[int], clients: int) -> NDArray[np.int64]:
    found = np.asarray(samples)
    if found.shape != (clients,) or found.dtype.kind not in "iu" or found.min(initial=1) < 1:
        raise InputError(
            "samples", samples, f"a whole number, at least 1, for each of {clients} clients"
        )
    return found.astype(np.int64)


def _no_data(samples: NDArray[np.int64]) -> ClientData:
    """As many samples as the clients have, with nothing in them."""
    total = int(samples.sum())
    ends = np.concatenate([[0], np.cumsum(samples)])
    return ClientData(torch.empty(total, 0), torch.zeros(1).expand(total), ends)


def _test(test: Any, problem: Problem) -> tuple[Tensor, Tensor] | None:
    """What the model is tested on here, beside what the app measures."""
    if test is None:
        return None
    if not (isinstance(test, tuple) and len(test) == 2 and isinstance(test[0], Tensor)):
        whole = ClientData.from_datasets([test])
        test = (whole.inputs, whole.targets)
    alike = ClientData(test[0], torch.as_tensor(test[1]), np.array([0, len(test[0])]))
    return test_samples(test, replace(problem, data=alike))


def _told_by(trainers: Sequence[FlowerTrainer], mean: Tensor) -> Row:
    """What the clients' `evaluate` says of u_k, and their `train` of the last round but its loss.

    Means with the weights that came with them.
    """
    vector, made = mean.numpy(), max(trainer.rounds for trainer in trainers)
    last = max(trainer.first for trainer in trainers)
    told: dict[str, list[tuple[float, int]]] = {}
    for trainer in trainers:
        own = {name: (value, trainer.samples) for name, value in trainer.measures.items()}
        own.pop("batch_loss", None)  # which the loop takes over all rounds
        present = own if trainer.first == last else {}
        for name, pair in (present | trainer.evaluate(vector, made, last)).items():
            told.setdefault(name, []).append(pair)
    return {name: _mean(pairs) for name, pairs in told.items()}


def _mean(pairs: Sequence[tuple[float, int]]) -> float:
    weight = sum(weight for _, weight in pairs)
    return sum(value * own for value, own in pairs) / weight if weight else float("nan")
