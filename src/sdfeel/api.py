"""`sdfeel.train`: a model, clients' data, a network, a schedule and a scheme, in one call."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import Plan, Scheme, plan_scheme
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientSource
from sdfeel.errors import InputError
from sdfeel.models import count_flops
from sdfeel.network import Network
from sdfeel.records.folder import RunFolder
from sdfeel.simulation.engines.choose import build_engine
from sdfeel.simulation.engines.engine import AveragingRule, Loss, Problem
from sdfeel.simulation.evaluation import Evaluation, Metric, accuracy
from sdfeel.simulation.loop import Progress, run_loop
from sdfeel.simulation.parameters import ParameterLayout
from sdfeel.simulation.ranks import join, place
from sdfeel.simulation.result import Result
from sdfeel.simulation.samples import test_samples as test_part
from sdfeel.simulation.samples import train_samples as train_part
from sdfeel.simulation.setup import (
    check_device,
    check_numbers,
    data_digests,
    fingerprint,
    make_problem,
)

__all__ = ["NegativeMixingWarning", "Result", "RoundingWarning", "train"]

logger = logging.getLogger("sdfeel")

# Training samples on which F(u_k) is estimated, unless told otherwise.
TRAIN_SAMPLES = 5000
# Amplification of rounding above which float32 exchanges between real servers lose their meaning.
MAX_AMPLIFICATION = 1e4


class NegativeMixingWarning(UserWarning):
    """An exchange gives some model a negative weight: it converges, but is no convex average."""


class RoundingWarning(UserWarning):
    """The averager is exact on paper, but not in the arithmetic of real servers."""


def train(
    model: nn.Module,
    client_datasets: Any,
    *,
    network: Network,
    schedule: Schedule | None = None,
    scheme: str | Scheme = "sd-feel",
    steps: int,
    lr: float = 0.01,
    batch_size: int = 10,
    seed: int = 0,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
    partition: str | Sequence[Any] | None = None,
    averager: str = "paper",
    participation: float = 1.0,
    averaging_rule: AveragingRule | None = None,
    profile: str | Path | LatencyProfile = "paper",
    until: float = math.inf,
    engine: str = "auto",
    device: str = "cpu",
    evaluate_every: int | None = None,
    train_samples: int | None = TRAIN_SAMPLES,
    evaluate_servers: bool = True,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float = 60.0,
    config: Mapping[str, Any] | None = None,
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Result:
    """Train `model` over the clients' data by a scheme (Algorithm 1), with a simulated clock.

    model            any nn.Module; it is not changed. A float64 model trains in float64
    client_datasets  a map-style dataset of (input, target) pairs for each client, or a
                     `ClientData`; or one dataset for all, with `partition`. Datasets are read
                     once: a transform that is random is frozen
    network          clusters and graph; `Network.ring(servers=10, clients_per_server=5)`
    schedule         `Schedule(tau1, tau2, alpha)`
    scheme           a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your own
    steps, until     iterations K, and simulated seconds after which to stop before K
    batch_size       at or above a client's data it means the client's full gradient
    loss             loss(outputs, targets), the mean over a batch; cross-entropy by default
    metrics          name -> metric(outputs, targets); accuracy by default with cross-entropy
    test             a dataset or (inputs, targets) that no client holds
    averager         how servers agree: a name of `sdfeel.AVERAGERS`
    participation    beta: probability that a client takes part in an upload period
    averaging_rule   what a server does instead of the weighted mean of its clients
    profile          latency profile: a name, the path of a TOML file or a `LatencyProfile`
    engine           "auto", "fast", "vectorised" or "reference"
    out, resume      folder that keeps the run; go on from its checkpoint. Then Ctrl-C and SIGTERM
                     end the run after the current step with a checkpoint

    Started by `torchrun`, the same call spreads the clusters over its ranks.
    """
    check_numbers(lr=lr, batch_size=batch_size, seed=seed, steps=steps)
    if not until > 0:
        raise InputError("until", until, "simulated seconds, above 0")
    where = check_device(device)
    source = ClientSource.of(client_datasets, partition, network.clients, seed)
    latency = _latency(profile, model, source, batch_size)
    plan = plan_scheme(
        scheme,
        network.with_samples(_checked(source.samples, network.clients)),
        schedule or Schedule(),
        profile=latency,
        parameters=ParameterLayout.of(model).parameters,
        averager=averager,
        participation=participation,
        seed=seed,
    )
    _warn(plan)
    ranks = join()
    placement = place(plan.network.clusters, ranks.size)
    held = placement.clients[ranks.rank] if ranks.size > 1 else None
    problem = make_problem(
        model,
        source.take(held),
        plan.network,
        loss=loss or F.cross_entropy,
        lr=lr,
        batch_size=batch_size,
        seed=seed,
        device=where,
        held=None if held is None else np.array(held),
    )
    if held is not None:
        source.forget()
    if metrics is None:
        metrics = {"accuracy": accuracy} if problem.loss is F.cross_entropy else {}
    evaluation = Evaluation(
        every=max(1, steps // 20) if evaluate_every is None else evaluate_every,
        train=train_part(problem, source.samples, train_samples),
        test=test_part(test, problem),
        metrics=metrics,
        servers=evaluate_servers,
    )
    start = problem.layout.vector(problem.model).clone()
    folder, snapshot = None, None
    if out is not None:
        digests = ranks.in_client_order(data_digests(problem), placement)
        mark = fingerprint(plan, problem, latency, start, digests, averaging_rule)
        folder = RunFolder(out, mark, checkpoint_seconds, writes=ranks.leads)
        about = _settings(plan, problem, latency, steps, until) if config is None else config
        kept = folder.create({**about, "seed": seed, "scheme": plan.scheme}, resume)
        if kept is not None:
            snapshot, wrote = kept
            engine = wrote if engine == "auto" else engine
    choice = build_engine(engine, problem, start, ranks, placement)
    if ranks.leads:
        logger.info("engine: %s", choice.reason)
        on_start(choice.engine.name, choice.reason)
    try:
        with nullcontext() if folder is None else folder.signals():
            outcome = run_loop(
                plan,
                choice.engine,
                evaluation,
                steps=steps,
                until=until,
                rule=averaging_rule,
                keeper=folder and folder.led_by(choice.engine.name),
                on_progress=on_progress if ranks.leads else lambda _: None,
                on_row=folder.write_rows if folder and ranks.leads else lambda _: None,
                start=snapshot,
            )
    finally:
        choice.engine.close()
    result = Result.of(outcome, problem, plan.scheme, choice)
    if folder is not None:
        result.keep(folder)
    return result


def _checked(samples: NDArray[np.int64], clients: int) -> NDArray[np.int64]:
    if len(samples) != clients:
        raise InputError("client_datasets", len(samples), f"the network has {clients} clients")
    return samples


def _settings(
    plan: Plan, problem: Problem, profile: LatencyProfile, steps: int, until: float
) -> dict[str, Any]:
    """What a run that no config describes was started with."""
    schedule = plan.schedule
    return {
        "steps": steps,
        "until": until,
        "schedule": {"tau1": schedule.tau1, "tau2": schedule.tau2, "alpha": schedule.alpha},
        "averager": plan.averager.name,
        "participation": plan.participation.beta,
        "lr": problem.lr,
        "batch_size": problem.batch_size,
        "clusters": plan.network.clusters.members,
        "links": sorted(sorted(link) for link in plan.network.graph.edges()),
        "samples": plan.network.shares.samples,
        "profile": profile.name,
        "model": str(problem.model),
        "loss": getattr(problem.loss, "__qualname__", str(problem.loss)),
    }


def _warn(plan: Plan) -> None:
    if plan.averager.has_negative_weights and plan.averager.name == "paper":
        warnings.warn(
            "clusters of unequal size give the paper's mixing matrix negative entries; "
            "averager='metropolis' has none (and mixes more slowly)",
            NegativeMixingWarning,
            stacklevel=3,
        )
    if plan.averager.amplification > MAX_AMPLIFICATION:
        warnings.warn(
            f"averager {plan.averager.name!r} enlarges rounding errors "
            f"{plan.averager.amplification:.0e}-fold on this network: this simulation applies its "
            "exact result, real servers would not reach it; 'all-reduce' gives the same mean",
            RoundingWarning,
            stacklevel=3,
        )


def _latency(
    profile: str | Path | LatencyProfile, model: nn.Module, source: ClientSource, batch_size: int
) -> LatencyProfile:
    """The profile, its FLOPs counted if it asks for that."""
    latency = load_profile(str(profile)) if isinstance(profile, str | Path) else profile
    if latency.flops_per_step is not None:
        return latency
    inputs = source.take([0]).inputs
    dtype = ParameterLayout.of(model).dtype if inputs.is_floating_point() else inputs.dtype
    shape = tuple(inputs.shape[1:])
    try:
        return latency.with_flops(count_flops(model, shape, batch_size, dtype))
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(
            "model", type(model).__name__, f"does not take inputs of shape {shape}: {reason}"
        ) from None
