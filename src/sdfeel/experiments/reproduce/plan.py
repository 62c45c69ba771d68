"""From figures, a profile and seeds to runs. What two figures share is one run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.pace import TurnPace
from sdfeel.data.catalogue import spec
from sdfeel.errors import InputError, closest
from sdfeel.experiments.compare import slug
from sdfeel.experiments.config import RunConfig, merge, run_config, with_settings
from sdfeel.experiments.reproduce.choice import Choice, Choose, choose
from sdfeel.experiments.reproduce.spec import TARGETS, Profile, Target, read_target, setting
from sdfeel.experiments.run import build_network
from sdfeel.models import build, count_flops

__all__ = ["PlannedRun", "Reproduction", "reproduction_of"]

TURNS = 10  # of the slowest group, from which the work of a run by turns is taken


@dataclass(frozen=True)
class PlannedRun:
    """One run. `folder` is a function of its settings; `work` is in client steps."""

    folder: str
    label: str
    config: RunConfig
    work: float

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
    curves: Mapping[str, Mapping[str, tuple[str, ...]]]
    settings: tuple[str, ...] = field(default=())
    chosen: Mapping[str, Mapping[str, Choice]] = field(default_factory=dict)


def reproduction_of(
    names: Sequence[str],
    *,
    profile: str = "default",
    dataset: str = "cifar10",
    seeds: int | None = None,
    settings: Sequence[str] = (),
    ask: Choose = choose,
) -> Reproduction:
    """The runs of the figures in `names`.

    seeds     in place of the profile's number
    settings  `key=value` for every run, such as data.partition=dirichlet
    ask       the planner, called once for every planned curve
    """
    common = setting()
    if dataset not in common.length:
        raise InputError("--dataset", dataset, closest(dataset, common.length))
    if seeds is not None and seeds < 1:
        raise InputError("--seeds", seeds, "at least 1")
    if not names:
        raise InputError("figure", "", closest("", [*TARGETS, "all"]))
    targets = tuple(read_target(name) for name in dict.fromkeys(names))
    asked = {target.name: seeds or target.profile[profile].seeds for target in targets}
    chosen: dict[str, dict[str, Choice]] = {target.name: {} for target in targets}
    configs = {
        t.name: _configs(t, profile, dataset, settings, ask, chosen[t.name]) for t in targets
    }
    jobs: dict[str, PlannedRun] = {}
    curves: dict[str, dict[str, list[str]]] = {target.name: {} for target in targets}
    for seed in range(max(asked.values())):
        for target in targets:
            if seed >= asked[target.name]:
                continue
            for label, config in configs[target.name].items():
                job = _job(f"{target.name}: {label}", config.changed(seed=seed))
                jobs.setdefault(job.folder, job)
                curves[target.name].setdefault(label, []).append(job.folder)
    done = {name: {key: tuple(of) for key, of in found.items()} for name, found in curves.items()}
    return Reproduction(
        targets,
        profile,
        dataset,
        max(asked.values()),
        tuple(jobs.values()),
        done,
        tuple(settings),
        chosen,
    )


def _configs(
    target: Target,
    profile: str,
    dataset: str,
    settings: Sequence[str],
    ask: Choose,
    chosen: dict[str, Choice],
) -> dict[str, RunConfig]:
    """The config of every curve, with its length and its evaluations; fills in what is chosen."""
    common = setting()
    sampling = common.evaluation[profile]
    base = merge(common.run, {"evaluation": sampling.model_dump(), "data": {"name": dataset}})
    base = merge(base, target.run)
    found = {}
    for curve in target.curve:
        table = merge(base, curve.change)
        extent = target.profile[profile]
        if curve.planned and extent.planning:
            setting_of = run_config(with_settings(table, settings))
            part = common.length[dataset]
            budget = extent.budget * curve.horizon * part
            effort = extent.planning.scaled(part)
            chosen[curve.label] = ask(setting_of, budget, effort, curve.planned)
            table = merge(table, chosen[curve.label].settings())
        config = run_config(table, f"{target.name}: {curve.label}")
        lengths = _length(config, extent, common.length[dataset] * curve.length)
        found[curve.label] = run_config(with_settings(merge(table, lengths), settings))
    return found


def _length(config: RunConfig, profile: Profile, part: float) -> dict[str, Any]:
    """Whole rounds that cover the profile's seconds and its iterations; when to evaluate."""
    algorithm = _algorithm(config)
    tau = algorithm.schedule.tau
    rounds = 1
    if profile.seconds is not None:
        rounds = max(rounds, math.ceil(profile.seconds * part / algorithm.round_cost().total))
    if profile.iterations is not None:
        rounds = max(rounds, math.ceil(profile.iterations * part / tau))
    every = max(1, round(rounds / profile.points))
    return {"steps": rounds * tau, "evaluation": {"every": every * tau}}


def _algorithm(config: RunConfig) -> Algorithm:
    """The scheme on clusters of equal size, which is near enough to say how long a run is."""
    network = build_network(config.network)
    parameters, flops = _size(config.model.name, config.data.name, config.settings.batch_size)
    return config.settings.algorithm(network, config.settings.latency.with_flops(flops), parameters)


@cache
def _size(model: str, dataset: str, batch_size: int) -> tuple[int, float]:
    """Parameters and FLOPs of a step; the paper's network where the user's own is not ours."""
    images = spec(dataset)
    name = model if ":" not in model else "paper-cnn"
    network = build(name, images.shape, images.classes, 0)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return parameters, count_flops(network, images.shape, batch_size)


def _job(label: str, config: RunConfig) -> PlannedRun:
    """The folder's name tells what the run is; its last part is a hash of every setting."""
    table, told = config.table(), config.settings
    identity = {k: v for k, v in table.items() if k not in ("title", "checkpoint_seconds")}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]
    s = told.schedule
    about = f"{table['scheme']} {config.network.graph} {s.tau1} {s.tau2} {s.alpha}"
    return PlannedRun(
        folder=f"{slug(about)}-seed{told.seed}-{digest}",
        label=f"{label}, seed {told.seed}",
        config=config,
        work=told.steps * _clients(_algorithm(config)),
    )


def _clients(algorithm: Algorithm) -> float:
    """How many clients make a step in an iteration of a run; by turns, of its slowest group."""
    if isinstance(algorithm.pace, TurnPace):
        agenda, many = algorithm.pace.agenda(algorithm), TURNS * algorithm.schedule.tau1
        while agenda.k < many:
            _, agenda = agenda.window(many, many, math.inf)
        return float(agenda.iterations.sum()) / agenda.k
    participation = algorithm.participation
    present = float(participation.present(0).sum()) if participation.drawn else 0.0
    return present or participation.clients * participation.beta
