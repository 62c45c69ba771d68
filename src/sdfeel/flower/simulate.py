"""A simulation whose clients are a Flower app.

The app brings its own data, so nothing of it is known here but the number of samples of each
client: its num-examples, which are the weights. They come with the reply of its first round.
"""

from __future__ import annotations

import copy
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sdfeel.engines.fit import Loss
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError, closest
from sdfeel.flower.apps import find_app, is_legacy
from sdfeel.flower.arrays import ArrayLayout, Vector
from sdfeel.flower.client import FlowerClient, Keys, numbers
from sdfeel.flower.generators import seeded
from sdfeel.flower.modules import Holder, layout_of, module_of
from sdfeel.flower.nodes import checked_config, node_configs, plain_config
from sdfeel.flower.plan import Plan
from sdfeel.flower.processes import Calls, why_here
from sdfeel.flower.project import FILE, project_table
from sdfeel.flower.rounds import Rounds
from sdfeel.flower.server_app import read_server_app
from sdfeel.flower.trainer import FlowerTrainer, column
from sdfeel.network import Network
from sdfeel.simulation.apart import Apart
from sdfeel.simulation.evaluation import Metric, Row
from sdfeel.simulation.ranks import join
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

__all__ = ["assemble", "planned", "saved_samples", "settle"]

# Bytes of first replies that are kept until their round; beyond that the app is asked again.
KEPT = 2**31

logger = logging.getLogger("sdfeel")


def settle(
    given: Mapping[str, Any], network: Network, clients: int | None, rounds: int | None
) -> Settings:
    """Return the settings of `sdfeel.train(flower=...)`, with the steps of so many rounds."""
    if clients is not None and clients != network.clients:
        raise InputError("clients", clients, f"the network has {network.clients} clients")
    if (rounds is None) == ("steps" not in given):
        raise InputError("rounds", rounds, "one of rounds and steps is needed, not both")
    settings = Settings.of(given)
    return settings if rounds is None else with_rounds(settings, rounds)


def with_rounds(settings: Settings, rounds: Any) -> Settings:
    """Return the settings with the steps of so many rounds."""
    if isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise InputError("rounds", rounds, "a whole number, at least 1")
    steps = Rounds(settings.scheme.schedule(settings.schedule)).last_iteration(rounds)
    return settings.model_copy(update={"steps": steps})


def planned(settings: Settings, server: str, folder: Path, clients: int) -> tuple[Settings, Plan]:
    """Read a project's server app, and let it fill in what the user has not set."""
    find_app("trainer", settings.flower, folder)  # a refusal of the app comes first
    chosen = settings.model_fields_set
    run_config = plain_config("flower.run_config", settings.run_config)
    if (folder / FILE).exists():
        known = plain_config(FILE, project_table(folder)[0]["flower"]["run_config"])
        for key in sorted(run_config.keys() - known.keys()):
            remedy = f"unknown key: {FILE} has none in tool.flwr.app.config; {closest(key, known)}"
            raise InputError(f"flower.run_config.{key}", run_config[key], remedy)
    is_free = bool({"server_optimizer", "averaging_rule"} & chosen)
    plan = read_server_app(server, folder, run_config, clients, settings.seed, is_free)
    meant = Settings.of({k: v for k, v in plan.settings.items() if k not in chosen})
    change = {name: getattr(meant, name) for name in meant.model_fields_set}
    for note in plan.notes:
        logger.warning("%s", note)
    settings = settings.model_copy(update=change)
    return settings if "steps" in chosen else with_rounds(settings, plan.rounds), plan


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
    plan: Plan | None = None,
    folder: Path | None = None,
    on_ask: Callable[[str], None] = logger.info,
) -> tuple[Simulation, list[FlowerTrainer]]:
    """Return the simulation, and a trainer for each of the network's clients.

    Args:
        samples: num-examples of each client; None: its first reply says them.
        plan: what the project's server app would do.
        folder: where the app's modules are looked for first.
        on_ask: called before clients train to say their num-examples, with a sentence.
    """
    app = find_app("flower", settings.flower, folder)
    if not isinstance(network, Network):
        raise InputError("network", network, "a sdfeel.Network, such as Network.ring(10, 5)")
    if (size := join()[1]) > 1:
        remedy = "a Flower app runs on one rank: its clients train in processes of their own"
        raise InputError("ranks", size, f"{remedy}, flower.processes of them")
    configs = node_configs(settings.node_config, network.clients)
    run_config = plain_config("run_config", settings.run_config)
    keys = Keys() if plan is None else plan.keys
    clients = [
        FlowerClient(
            app, ArrayLayout([], 0), str(n), n, network.clients, run_config, config,
            settings.seed, keys,
        )
        for n, config in enumerate(configs)
    ]  # fmt: skip
    if plan is not None and initial is None and model is None and is_legacy(app):
        initial = [array.numpy() for array in clients[0].first_model().values()]
    module, arrays = module_of(copy.deepcopy(model), initial)
    if test is not None and isinstance(module, Holder):
        raise InputError("test", type(test).__name__, "needs the module: model=Net()")
    _say_of_statistics([name for name, _ in arrays])
    layout = layout_of(module, arrays)
    for client in clients:
        client.layout = layout
    config = checked_config("train_config", settings.train_config)
    calls = Calls(clients, _processes(settings, network.clients))
    schedule = settings.scheme.schedule(settings.schedule)
    rounds = Rounds(schedule)
    train, look = _configs(plan, config, "lr" in settings.model_fields_set)
    given = [None] * len(clients) if samples is None else _counts(samples, len(clients)).tolist()
    trainers = [
        FlowerTrainer(
            client,
            count,
            settings.lr,
            train,
            look,
            round_of=lambda first, _: rounds.number(first),
            calls=calls,
        )
        for client, count in zip(clients, given, strict=True)
    ]
    start = ParameterLayout.of(module).vector(module).numpy()
    decided = [run_config, config, configs if any(configs) else None]
    central = None if plan is None else _central(plan, layout, settings.seed, network.clients)
    is_tested = test is not None

    def put_together(weights: Sequence[int]) -> Simulation:
        apart = Apart(
            np.array(weights),
            lambda mean: _measured(trainers, mean.numpy(), central, is_tested),
            json.dumps(decided, sort_keys=True, default=str),
        )
        return Simulation.assemble(
            module, None, settings, network=network, loss=loss, metrics=metrics, test=test,
            apart=apart,
        )  # fmt: skip

    put_together([1] * len(clients)).check_for_trainers()  # before an app is asked for anything
    try:
        if samples is None:
            on_ask(f"the {len(clients)} clients train in round 1, which says their num-examples")
            _ask(trainers, start, min(schedule.at(0).tau1, settings.steps))
        simulation = put_together([trainer.samples for trainer in trainers])
    except BaseException:
        calls.close()
        raise
    return simulation, trainers


def saved_samples(out: str | Path) -> list[int] | None:
    """Return num-examples as the folder of a run to go on with has them: nobody is asked again."""
    file = Path(out) / "network.json"
    try:
        samples: list[int] | None = json.loads(file.read_bytes()).get("client_samples")
    except (OSError, ValueError, AttributeError):  # the folder itself is checked later
        return None
    return samples


def _ask(trainers: Sequence[FlowerTrainer], start: Vector, steps: int) -> None:
    """Ask all clients to train in round 1; their replies are kept for it if there is room."""
    keeps = start.nbytes * len(trainers) <= KEPT
    ends = [trainer.ask(start, steps, keeps) for trainer in trainers]
    for end in ends:
        end()


def _configs(
    plan: Plan | None, config: Mapping[str, Any], has_lr: bool
) -> tuple[Callable[[int], Mapping[str, Any]], Callable[[int], Mapping[str, Any]] | None]:
    """Return what clients are told in a round, to train and to evaluate: the user's comes last."""
    if plan is None:
        return (lambda _: config), (lambda _: config)

    def train(number: int) -> Mapping[str, Any]:
        of_plan = {k: v for k, v in plan.train(number).items() if k != "lr" or not has_lr}
        return {**of_plan, **config}

    evaluate = plan.evaluate
    return train, None if evaluate is None else (lambda number: {**evaluate(number), **config})


def _processes(settings: Settings, clients: int) -> int:
    """Return how many processes carry out calls: by default one for each core."""
    wanted = settings.processes or min(len(os.sched_getaffinity(0)), clients)
    reason = why_here() if wanted > 1 else ""
    if reason and settings.processes:
        remedy = f"cannot be more than 1: {reason}"
        raise InputError("flower.processes", settings.processes, remedy)
    if reason:
        logger.info("clients train one after the other: %s", reason)
    return 1 if reason else wanted


def _say_of_statistics(names: Sequence[str]) -> None:
    """Say once what happens to the statistics of batch normalisation."""
    if any(name.endswith("running_mean") for name in names):
        logger.warning(
            "the model has batch normalisation: running means and variances are averaged like "
            "weights, so the variance between clients' means is missing in the averaged model"
        )


def _counts(samples: Sequence[int], clients: int) -> NDArray[np.int64]:
    counts = np.asarray(samples)
    if counts.shape != (clients,) or counts.dtype.kind not in "iu" or counts.min(initial=1) < 1:
        raise InputError(
            "samples", samples, f"a whole number, at least 1, for each of {clients} clients"
        )
    return counts.astype(np.int64)


def _central(
    plan: Plan, layout: ArrayLayout, seed: int, clients: int
) -> Callable[[int, Vector], Row] | None:
    """Return the server app's own evaluation, as columns `central_*`."""
    function = plan.measure
    if function is None:
        return None

    def measured(number: int, vector: Vector) -> Row:
        with seeded(seed, clients, number):
            metrics, _ = numbers(function(number, layout.record(vector)))
        return {column("central", name): value for name, value in metrics.items()}

    return measured


def _measured(
    trainers: Sequence[FlowerTrainer],
    mean: Vector,
    central: Callable[[int, Vector], Row] | None,
    is_tested: bool,
) -> Row:
    """What the clients' `evaluate` says of u_k, and their `train` of the last round but its loss.

    Means with the weights that came with them. Where samples to test on were given, which have the
    columns `test_*`, those of the clients are `app_*`.
    """
    made, last = max(t.rounds for t in trainers), max(t.first for t in trainers)
    ends = [trainer.begin_evaluation(mean, made, last) for trainer in trainers]
    values: dict[str, list[tuple[float, int]]] = {}
    for trainer, end in zip(trainers, ends, strict=True):
        reported = {name: (value, trainer.samples) for name, value in trainer.measures.items()}
        reported.pop("batch_loss", None)  # which the loop takes over all rounds
        present = reported if trainer.first == last else {}
        for name, pair in (present | end()).items():
            shown = f"app_{name.removeprefix('test_')}" if is_tested else name
            values.setdefault(shown if name.startswith("test_") else name, []).append(pair)
    row = {name: _mean(pairs) for name, pairs in values.items()}
    return row if central is None else row | central(made, mean)


def _mean(pairs: Sequence[tuple[float, int]]) -> float:
    total = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / total if total else float("nan")
