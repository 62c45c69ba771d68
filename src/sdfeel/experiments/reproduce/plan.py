"""From figures, a profile and seeds to runs. What two figures share is one run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import round_cost, steps_per_iteration
from sdfeel.data import fetch
from sdfeel.data.catalogue import spec
from sdfeel.errors import InputError, closest
from sdfeel.experiments.config import RunConfig, run_config
from sdfeel.experiments.jobs import Job, JobProgress, Started, run_all, run_from, slug
from sdfeel.experiments.reproduce.choice import Choice, Choose, choose
from sdfeel.experiments.reproduce.spec import (
    PAPER,
    Collection,
    Profile,
    Setting,
    Target,
    read_target,
    setting,
)
from sdfeel.experiments.run import build_network
from sdfeel.models import build, count_flops
from sdfeel.toml import merge, with_settings

RUNS = "runs"  # the folder of all runs, in that of the reproduction
TURNS = 10  # rounds, or turns of the slowest group, from which the work of a run is taken


@dataclass(frozen=True, kw_only=True)
class PlannedRun(Job):
    """A run whose folder is a function of its settings; its work is in client steps."""

    config: RunConfig

    @property
    def seed(self) -> int:
        return self.config.settings.seed


@dataclass(frozen=True)
class Reproduction:
    """All runs of some figures.

    jobs    by seed, then by figure: what is done first is one seed of everything
    curves  figure -> label -> the folders of its runs, one for each seed
    chosen  figure -> label -> what the planner chose for the curve
    """

    targets: tuple[Target, ...]
    profile: str
    dataset: str
    seeds: int
    jobs: tuple[PlannedRun, ...]
    curves: Mapping[str, Mapping[str, Sequence[str]]]
    settings: tuple[str, ...] = field(default=())
    chosen: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)
    collection: Collection = PAPER


def reproduction_of(
    names: Sequence[str],
    *,
    profile: str = "default",
    dataset: str = "cifar10",
    seeds: int | None = None,
    settings: Sequence[str] = (),
    ask: Choose = choose,
    collection: Collection = PAPER,
) -> Reproduction:
    """Plan the runs of some figures.

    Args:
        names: of the figures, which are all of one collection.
        profile: "quick", "default" or "full".
        dataset: on what.
        seeds: in place of the profile's number.
        settings: `key=value` for every run, such as data.partition=dirichlet.
        ask: the planner, called once for every planned curve.
        collection: of the paper's figures, or of others' experiments.
    """
    common = setting(collection)
    if dataset not in common.length:
        raise InputError("--dataset", dataset, closest(dataset, common.length))
    if seeds is not None and seeds < 1:
        raise InputError("--seeds", seeds, "at least 1")
    if not names:
        raise InputError("figure", "", closest("", [*collection.targets, "all"]))
    targets = tuple(read_target(name, collection) for name in dict.fromkeys(names))
    seeds_of = {target.name: seeds or target.profile[profile].seeds for target in targets}
    chosen: dict[str, dict[str, Choice]] = {target.name: {} for target in targets}
    configs = {
        t.name: _configs(t, common, profile, dataset, settings, ask, chosen[t.name])
        for t in targets
    }
    jobs: dict[str, PlannedRun] = {}
    curves: dict[str, dict[str, list[str]]] = {target.name: {} for target in targets}
    most = max(seeds_of.values())
    for seed in range(most):
        for name in (name for name, count in seeds_of.items() if seed < count):
            for label, config in configs[name].items():
                job = _job(f"{name}: {label}", config.changed(seed=seed))
                jobs.setdefault(job.folder, job)
                curves[name].setdefault(label, []).append(job.folder)
    runs = tuple(jobs.values())
    return Reproduction(
        targets, profile, dataset, most, runs, curves, tuple(settings), chosen, collection
    )


def carry_out(
    plan: Reproduction,
    out: Path,
    *,
    on_start: Started = lambda *_: None,
    on_progress: Callable[[JobProgress], None] = lambda _: None,
    on_seed: Callable[[int], None] = lambda _: None,
) -> None:
    """Do what is not done yet; `Interrupted` says that the user stopped it.

    on_seed  called with the number of seeds that are complete: after the first, and at the end
    """
    if plan.jobs:
        fetch(plan.dataset)
    first = {number for number, job in enumerate(plan.jobs) if job.seed == 0}

    def note(left: set[int]) -> None:
        if first and left and not first & left:
            first.clear()
            on_seed(1)

    run_all(plan.jobs, out / RUNS, on_start=on_start, on_progress=on_progress, on_done=note)
    on_seed(plan.seeds)


def _configs(
    target: Target,
    common: Setting,
    profile: str,
    dataset: str,
    settings: Sequence[str],
    ask: Choose,
    chosen: dict[str, Choice],
) -> dict[str, RunConfig]:
    """Make the config of every curve, its length and its evaluations; fill in what is chosen."""
    extent = target.profile[profile]
    sampling = common.evaluation[profile].model_dump()
    base = merge(common.run, {"evaluation": sampling, "data": {"name": dataset}})
    base, part = merge(base, target.run), common.length[dataset]
    configs = {}
    for curve in target.curve:
        table = merge(base, curve.change)
        if curve.planned and extent.planning:
            chosen[curve.label] = ask(
                run_config(with_settings(table, settings)),
                extent.budget * curve.horizon * part,
                extent.planning.scaled(part),
                curve.planned,
            )
            table = merge(table, chosen[curve.label].settings())
        config = run_config(table, f"{target.name}: {curve.label}")
        length = _own_length(table, extent) or _length(config, extent, part * curve.length)
        table = merge(table, length)
        configs[curve.label] = run_config(with_settings(table, settings))
    return configs


def _own_length(table: Mapping[str, Any], profile: Profile) -> dict[str, Any] | None:
    """Take the steps and evaluations that a curve has itself, bounded by the profile's."""
    if "steps" not in table:
        return None
    return {"steps": min(int(table["steps"]), int(profile.iterations or table["steps"]))}


def _length(config: RunConfig, profile: Profile, part: float) -> dict[str, Any]:
    """Take whole rounds that cover the profile's seconds and iterations; when to evaluate."""
    algorithm = _algorithm(config)
    tau = algorithm.schedule.tau
    rounds = 1
    if profile.seconds is not None:
        rounds = max(rounds, math.ceil(profile.seconds * part / round_cost(algorithm).total))
    if profile.iterations is not None:
        rounds = max(rounds, math.ceil(profile.iterations * part / tau))
    every = max(1, round(rounds / profile.points))
    return {"steps": rounds * tau, "evaluation": {"every": every * tau}}


def _algorithm(config: RunConfig) -> Algorithm:
    """Assume clusters of equal size, which is near enough to say how long a run is.

    So is the size of another data set, where the user's function makes the data.
    """
    network = build_network(config.network)
    dataset = config.data.name if ":" not in config.data.name else "mnist"
    parameters, flops = _size(config.model.name, dataset, config.settings.batch_size)
    return config.settings.algorithm(network, config.settings.latency.with_flops(flops), parameters)


@cache
def _size(model: str, dataset: str, batch_size: int) -> tuple[int, float]:
    """Count parameters and FLOPs of a step; of the paper's network where the user's is not ours."""
    images = spec(dataset)
    name = model if ":" not in model else "paper-cnn"
    network = build(name, images.shape, images.classes, 0)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return parameters, count_flops(network, images.shape, batch_size)


def _job(name: str, config: RunConfig) -> PlannedRun:
    """Name the folder by what the run is; its last part is a hash of every setting."""
    table, settings = config.table(), config.settings
    identity = {k: v for k, v in table.items() if k not in ("title", "checkpoint_seconds")}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    s, algorithm = settings.schedule, _algorithm(config)
    about = f"{table['scheme']} {config.network.graph} {s.tau1} {s.tau2} {s.alpha}"
    return PlannedRun(
        name=f"{name}, seed {settings.seed}",
        folder=f"{slug(about)}-seed{settings.seed}-{digest}",
        run=partial(run_from, config),
        work=settings.steps * steps_per_iteration(algorithm, TURNS * algorithm.schedule.tau),
        config=config,
    )
