"""`sdfeel.train`: a model, clients' data, a network, a schedule and a scheme, in one call."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.data import ClientData, ClientSource
from sdfeel.engines.choose import build_engine
from sdfeel.engines.ranks import join, place
from sdfeel.errors import InputError
from sdfeel.models import count_flops
from sdfeel.network import Network
from sdfeel.training.checkpoints import save_models
from sdfeel.training.engine import AveragingRule, Loss, Problem
from sdfeel.training.evaluation import Evaluation, Metric, Samples, accuracy, some_rows
from sdfeel.training.loop import Keeper, NoKeeper, Outcome, Progress, run_loop
from sdfeel.training.parameters import ParameterLayout
from sdfeel.training.records import RunFolder
from sdfeel.training.schedule import Schedule
from sdfeel.training.schemes import Plan, Scheme, plan_scheme
from sdfeel.training.setup import (
    check_device,
    check_fit,
    check_numbers,
    data_digests,
    fingerprint,
    make_problem,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


@dataclass
class Result:
    """What training gave.

    model          the global model, the weighted mean u_K
    server_models  each edge server's own model
    history        a pandas DataFrame, one row an evaluation
    """

    model: nn.Module
    history: pd.DataFrame
    scheme: str
    engine: str
    engine_reason: str
    iterations: int
    seconds: float  # simulated
    client_steps: int
    elapsed: float  # real seconds
    phases: Mapping[str, float]
    interrupted: bool = False
    folder: Path | None = None
    signal: int | None = None  # that ended it early
    leads: bool = True  # False at the ranks that only help: their history is not complete
    _problem: Problem | None = field(default=None, repr=False)
    _servers: Tensor | None = field(default=None, repr=False)

    @cached_property
    def server_models(self) -> list[nn.Module]:
        assert self._problem is not None and self._servers is not None  # noqa: S101, PT018
        layout = self._problem.layout
        return [layout.module(self._problem.model, vector) for vector in self._servers]

    @property
    def client_steps_per_second(self) -> float:
        return self.client_steps / self.elapsed if self.elapsed > 0 else 0.0

    def summary(self) -> dict[str, Any]:
        """The end of the run in a few numbers, as `sdfeel run --json` prints them."""
        last = self.history.iloc[-1].to_dict()
        loss = last.get("train_loss", last.get("batch_loss"))
        return {
            "scheme": self.scheme,
            "iterations": self.iterations,
            "seconds": self.seconds,
            "loss": loss,
            "test_loss": last.get("test_loss"),
            "accuracy": last.get("test_accuracy", last.get("train_accuracy")),
            "client_steps_per_second": self.client_steps_per_second,
            "engine": self.engine,
            "interrupted": self.interrupted,
        }

    def plot(self, path: str | Path | None = None) -> Figure:
        """Loss and accuracy over simulated time; written to `path` too if one is given."""
        from sdfeel.reports.figures import figure_over_time, save_figure

        figure = figure_over_time({self.scheme: self.history})
        if path is not None:
            save_figure(figure, Path(path))
        return figure


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
    if len(source.samples) != network.clients:
        raise InputError(
            "client_datasets", len(source.samples), f"the network has {network.clients} clients"
        )
    latency = load_profile(str(profile)) if isinstance(profile, str | Path) else profile
    if latency.flops_per_step is None:
        latency = latency.with_flops(_count_flops(model, source.take([0]).inputs, batch_size))
    plan = plan_scheme(
        scheme,
        network.with_samples(source.samples),
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
        train=_train_samples(problem, source.samples, train_samples),
        test=_test_samples(test, problem),
        metrics=metrics,
        servers=evaluate_servers,
    )
    start = problem.layout.vector(problem.model).clone()
    folder, snapshot = None, None
    if out is not None:
        digests = ranks.in_client_order(data_digests(problem), placement)
        mark = fingerprint(plan, problem, latency, start, digests, averaging_rule)
        folder = RunFolder(out, mark, checkpoint_seconds, writes=ranks.leads)
        kept = folder.create({**(config or {}), "seed": seed, "scheme": plan.scheme}, resume)
        if kept is not None:
            snapshot, wrote = kept
            engine = wrote if engine == "auto" else engine
    chosen = build_engine(engine, problem, start, ranks, placement)
    if ranks.leads:
        logger.info("engine: %s", chosen.reason)
        on_start(chosen.engine.name, chosen.reason)
    keeper: Keeper = NoKeeper() if folder is None else folder.led_by(chosen.engine.name)
    try:
        with nullcontext() if folder is None else folder.signals():
            outcome = run_loop(
                plan,
                chosen.engine,
                evaluation,
                steps=steps,
                until=until,
                rule=averaging_rule,
                keeper=keeper,
                on_progress=on_progress if ranks.leads else lambda _: None,
                on_row=folder.write_rows if folder and ranks.leads else lambda _: None,
                start=snapshot,
            )
    finally:
        chosen.engine.close()
    result = _result(outcome, problem, plan, chosen.engine.name, chosen.reason)
    result.leads = ranks.leads
    if folder is not None:
        result.folder, result.signal = folder.path, folder.signal
        if ranks.leads:
            _keep(result, folder)
    return result


def _result(outcome: Outcome, problem: Problem, plan: Plan, engine: str, reason: str) -> Result:
    return Result(
        model=problem.layout.module(problem.model, outcome.mean),
        history=pd.DataFrame(outcome.rows).astype({"iteration": int}),
        scheme=plan.scheme,
        engine=engine,
        engine_reason=reason,
        iterations=outcome.iteration,
        seconds=outcome.seconds,
        client_steps=outcome.client_steps,
        elapsed=outcome.elapsed,
        phases=outcome.phases,
        interrupted=outcome.interrupted,
        _problem=problem,
        _servers=outcome.servers,
    )


def _keep(result: Result, folder: RunFolder) -> None:
    """Models and summary of a run that has ended."""
    assert result._problem is not None and result._servers is not None  # noqa: S101, PT018
    layout = result._problem.layout
    save_models(folder.path / "model.safetensors", layout.split(layout.vector(result.model)))
    save_models(folder.path / "servers.safetensors", {"servers": result._servers})
    folder.write_json("summary.json", {**result.summary(), "phases": dict(result.phases)})


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


def _count_flops(model: nn.Module, inputs: Tensor, batch_size: int) -> float:
    dtype = ParameterLayout.of(model).dtype if inputs.is_floating_point() else inputs.dtype
    shape = tuple(inputs.shape[1:])
    try:
        return count_flops(model, shape, batch_size, dtype)
    except (RuntimeError, ValueError, TypeError, IndexError) as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(
            "model", type(model).__name__, f"does not take inputs of shape {shape}: {reason}"
        ) from None


def _train_samples(problem: Problem, samples: NDArray[np.int64], count: int | None) -> Samples:
    """The part of the evaluated training samples that this rank holds: the same rows over all
    clients, whatever the number of ranks.
    """
    if count is not None and count < 1:
        raise InputError("train_samples", count, "at least 1, or None for all")
    rows = some_rows(int(samples.sum()), count)
    ends = np.cumsum(samples)
    client = np.searchsorted(ends, rows, side="right")
    within = rows - (ends - samples)[client]
    position = np.full(len(samples), -1)
    position[problem.client_ids] = np.arange(problem.data.clients)
    here = position[client] >= 0
    chosen = torch.from_numpy(problem.data.offsets[position[client[here]]] + within[here])
    return problem.data.inputs[chosen], problem.data.targets[chosen]


def _test_samples(test: Any, problem: Problem) -> Samples | None:
    if test is None:
        return None
    try:
        if not (isinstance(test, tuple) and len(test) == 2 and isinstance(test[0], Tensor)):
            whole = ClientData.from_datasets([test])
            test = (whole.inputs, whole.targets)
        data = ClientData(test[0], torch.as_tensor(test[1]), np.array([0, len(test[0])]))
    except InputError as empty:
        raise InputError("test", empty.value, empty.remedy) from None
    if data.inputs.shape[1:] != problem.data.inputs.shape[1:]:
        raise InputError(
            "test",
            tuple(data.inputs.shape),
            f"samples must have the clients' shape {tuple(problem.data.inputs.shape[1:])}",
        )
    dtype = problem.layout.dtype

    def placed(tensor: Tensor) -> Tensor:
        real = tensor.is_floating_point()
        return tensor.to(problem.device, dtype if real else torch.int64).contiguous()

    inputs, targets = placed(data.inputs), placed(data.targets)
    try:
        check_fit(problem.model, problem.loss, ClientData(inputs, targets, data.offsets))
    except InputError as misfit:
        raise InputError(f"test: {misfit.field}", misfit.value, misfit.remedy) from None
    return inputs, targets
