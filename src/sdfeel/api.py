"""`sdfeel.train`: a model, clients' data, a network, a schedule and a scheme, in one call."""

from __future__ import annotations

import inspect
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Unpack

from torch import Tensor, nn

from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.trainer import Trainer
from sdfeel.callbacks import All, Callback, check_callbacks
from sdfeel.engines.problem import Loss
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.records.checkpoints import Row
from sdfeel.records.folder import RunFolder
from sdfeel.records.trace import Trace
from sdfeel.simulation.arguments import RunSettings
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.flops import ClockWarning
from sdfeel.simulation.listening import Listener, Progress
from sdfeel.simulation.result import Models, Result
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import NegativeMixingWarning, RoundingWarning, Simulation
from sdfeel.tables import name_of

__all__ = [
    "ClockWarning", "NegativeMixingWarning", "Result", "RoundingWarning", "assembled", "carry_out",
    "train",
]  # fmt: skip

logger = logging.getLogger("sdfeel")


def train(
    model: nn.Module | None = None,
    client_datasets: Any = None,
    *,
    network: Network,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
    partition: str | Sequence[Any] | None = None,
    trainers: Sequence[Trainer] | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    initial: Any = None,
    samples: Sequence[int] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    on_start: Callable[[str, str], None] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
    callbacks: Sequence[Callback] = (),
    **settings: Unpack[RunSettings],
) -> Result:
    """Train `model` over the clients' data by a scheme (Algorithm 1), with a simulated clock.

    Args:
        model: any nn.Module; it is not changed. A float64 model trains in float64.
        client_datasets: for each client a pair of arrays or a map-style dataset; or a `ClientData`;
            or one dataset for all, with `partition`. Datasets are read once.
        network: clusters and graph; `Network.ring(servers=10, clients_per_server=5)`.
        loss: loss(outputs, targets), the mean over a batch; cross-entropy by default.
        metrics: name -> metric(outputs, targets); accuracy by default with cross-entropy.
        test: a dataset or (inputs, targets) that no client holds.
        partition: of one dataset for all: a name of `sdfeel.data.PARTITIONS`, or row numbers.
        trainers: an object for each client that does its local updates: a `Trainer`, as in a
            deployment; then `optimizer` and `lr` are its own business.
        clients: with `flower`: how many; those of the network.
        rounds: with `flower`, in place of `steps`: how often a client is asked to train, once in an
            upload period of tau1 steps.
        initial: with `flower`: the first model, a state dict or a list of arrays; by default what
            `model` holds, which is only needed for `test`.
        samples: with `flower`: num-examples of each client.
        out: folder that keeps the run. Then Ctrl-C and SIGTERM end the run with a checkpoint.
        resume: go on from the checkpoint in `out`.
        config: what the folder is to say of the run, in place of its settings.
        on_start: called with the engine's name and why it is this one.
        on_progress: called with a `Progress` after every upload period; if it answers True the run
            ends there, with a whole result.
        callbacks: objects of `sdfeel.callbacks`, or your own: told of every evaluation and period,
            and able to end the run.
        settings: all that can be set of a run, below.

    Keyword Args:
        steps (int = 1000): iterations K; with `until` alone, as many as it takes.
        until (float = None): simulated seconds: the run ends with the period that comes to them.
        scheme (str | Scheme = 'sd-feel'): a row of `sdfeel.SCHEMES`, by name, or a `Scheme` of your
            own.
        schedule (Schedule = dict(tau1=2, tau2=1, alpha=5)): `Schedule(tau1, tau2, alpha)`, numbers
            or functions of the round.
        participation (float = 1.0): beta: the probability that a client takes part in a period.
        averager (str | Averager | Builder | Sequence = 'paper'): how servers agree: a name of
            `sdfeel.AVERAGERS`, clipped or trimmed where neighbours may lie, a mixing matrix, or one
            of your own (in a file its import path, `my_file:averager`).
        averaging_rule (str | AveragingRule | Callable | None = 'mean'): what a server does instead
            of the weighted mean of its clients.
        server_optimizer (str | ServerOptimizer | None = 'mean'): what a server does with that mean:
            fedavgm, fedadagrad, fedadam or fedyogi.
        optimizer (str | Optimizer = 'sgd'): what a client does with a gradient:
            `sdfeel.Momentum(0.9)`.
        lr (float | Rate | Callable = 0.01): the rate eta, or a function of the iteration k:
            `sdfeel.Cosine(0.1, over=2000)`; in a file a number, and its shape in `rate`.
        codecs (Mapping = dict(up='float32', down='float32', between='float32')): what travels, by
            way (up, down, between): `{'up': 'int8', 'down': 'int8'}`.
        pace (str | Pace = 'synchronous'): who waits for whom: `sdfeel.Deadline(seconds=1.0)`,
            `sdfeel.Asynchronous()`.
        correction (str | Method | None = 'none'): of clients' and servers' drift: two-level,
            clients, servers or mtgc, or `sdfeel.Correction(gamma=0.5)`.
        methods (Sequence = []): more methods, of your own: objects of subclasses of
            `sdfeel.Method`; in a file import paths of what makes them, `my_file:Name`.
        attacks (Attacks | None = None): who lies, and how: `{"servers": {1: "dissensus"},
            "clients": {3: "sign-flip"}}`.
        batch_size (int = 10): samples of a mini-batch; a client with no more takes all of its data.
        seed (int = 0): of batches, participation, devices and codecs: of all that is random.
        profile (str | Path | LatencyProfile = 'auto'): latency profile: a name, the path of a TOML
            file, a dict with the keys of such a file or a `LatencyProfile`; auto: `paper` with the
            paper's network, else `counted`.
        flower (Any = None): a Flower `ClientApp`, or its import path; in a file
            `flower:MODULE:APP`.
        run_config (Mapping = {}): what the app finds as its run_config.
        train_config (Mapping = {}): what every message tells the app, beside `lr`.
        node_config (Mapping | Sequence = {}): what the app finds as its node_config: values for all
            clients, or a list with one for each.
        processes (int | None = None): in how many processes clients of the app train; one for each
            core.
        engine (str = 'auto'): "auto", "fast", "vectorised", "loop" or "reference".
        device (str | torch.device = 'cpu'): where models are trained, as torch names it: cpu, cuda.
        evaluate_every (int | None = None): iterations between two evaluations; by default a
            twentieth of the run.
        train_samples (int | None = 5000): samples on which the training loss is taken; None for
            all.
        evaluate_servers (bool = True): whether history has min, mean and max over the servers' own
            models.
        checkpoint_seconds (float = 60.0): real seconds between two checkpoints.

    Returns:
        The trained model, its history and more: a `Result`.

    Raises:
        InputError: something that was given cannot be right; nothing is trained.
        RunError: the run cannot go on, for instance because a loss is not a number any more.
        KeyboardInterrupt: Ctrl-C; with `out` after a checkpoint, from which `resume` goes on.

    Started by `torchrun`, the same call spreads the clusters over its ranks.

    Example:
        >>> import numpy as np, sdfeel, torch
        >>> rng = np.random.default_rng(0)
        >>> data = [(rng.normal(size=(20, 4)), rng.integers(0, 2, 20)) for _ in range(6)]
        >>> result = sdfeel.train(
        ...     torch.nn.Linear(4, 2).double(), data, steps=10, seed=1,
        ...     network=sdfeel.Network.ring(servers=3, clients_per_server=2),
        ... )
        >>> result.iterations
        10
    """
    if resume and out is not None and samples is None and settings.get("flower") is not None:
        from sdfeel.flower.simulate import saved_samples  # Flower is optional

        samples = saved_samples(out)
    simulation, own_trainers = assembled(
        model,
        client_datasets,
        network=network,
        loss=loss,
        metrics=metrics,
        test=test,
        partition=partition,
        trainers=trainers,
        clients=clients,
        rounds=rounds,
        initial=initial,
        samples=samples,
        **settings,
    )
    del client_datasets  # a rank holds the data of its own clients
    result = carry_out(
        simulation,
        out=out,
        resume=resume,
        config=config,
        trainers=own_trainers,
        on_start=on_start,
        on_progress=on_progress,
        callbacks=callbacks,
    )
    if result.interrupted and result.signal is not None:
        # The folder has it all; a loop over several runs must not go on to the next.
        if result.signal == signal.SIGINT:
            raise KeyboardInterrupt(f"resume=True goes on with {out}")
        raise SystemExit(128 + result.signal)
    return result


def assembled(
    model: nn.Module | None = None,
    client_datasets: Any = None,
    *,
    network: Network,
    loss: Loss | None = None,
    metrics: Mapping[str, Metric] | None = None,
    test: Any = None,
    partition: str | Sequence[Any] | None = None,
    trainers: Sequence[Trainer] | None = None,
    clients: int | None = None,
    rounds: int | None = None,
    initial: Any = None,
    samples: Sequence[int] | None = None,
    **settings: Any,
) -> tuple[Simulation, Sequence[Trainer] | None]:
    """The simulation that arguments of `train` describe, and who trains in place of an engine."""
    if settings.get("flower") is not None:
        if client_datasets is not None or trainers is not None or partition is not None:
            raise InputError("flower", name_of(settings["flower"]), "the app has data of its own")
        from sdfeel.flower.simulate import assemble, settle  # Flower is optional

        return assemble(
            settle(settings, network, clients, rounds),
            network=network,
            model=model,
            initial=initial,
            samples=samples,
            loss=loss,
            metrics=metrics,
            test=test,
        )
    settings = {
        name: value
        for name, value in settings.items()
        if value is not None or name not in ("steps", "until")
    }
    others = [name for name in inspect.signature(train).parameters if name != "settings"]
    checked = Settings.of(settings, others)
    _refuse(clients=clients, rounds=rounds, initial=initial, samples=samples)
    if "steps" not in settings and "until" not in settings:
        raise InputError("steps", None, "is needed: the number of iterations K; or until=seconds")
    simulation = Simulation.assemble(
        model,
        client_datasets,
        checked,
        network=network,
        loss=loss,
        metrics=metrics,
        test=test,
        partition=partition,
    )
    return simulation, trainers


def _refuse(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(name, value, "goes with flower=, a Flower app")


def carry_out(
    simulation: Simulation,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    config: Mapping[str, Any] | None = None,
    trainers: Sequence[Trainer] | None = None,
    on_start: Callable[[str, str], None] | None = None,
    on_progress: Callable[[Progress], object] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a simulation to its end; `config` is what the folder says of it."""
    check_callbacks(callbacks)
    _check_folder(out, resume)
    if config is not None and not isinstance(config, Mapping):
        raise InputError("config", config, "a dict")
    simulation.warn()
    leads, name = simulation.ranks.leads, simulation.settings.engine
    folder, checkpoint = None, None
    identity = {"seed": simulation.settings.seed, "scheme": simulation.algorithm.scheme.name}
    about = {**(simulation.about() if config is None else config), **identity}
    if out is not None:
        mark = simulation.fingerprint()
        folder = RunFolder(out, mark, simulation.settings.checkpoint_seconds, writes=leads)
        saved = folder.create(about, resume)
        if saved is not None:
            checkpoint, wrote = saved
            name = wrote if name == "auto" else name
        if leads:
            _draw(simulation, folder, None if checkpoint is None else checkpoint.iteration)
    try:
        choice = simulation.engine(name) if trainers is None else simulation.engine_of(trainers)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("while the engine was chosen: nothing was trained") from None
    if folder is not None:
        folder.led_by(choice.engine.name, choice.engine.about())
    if leads:
        other = choice.engine.name not in (name, "trainers") and name != "auto"
        logger.log(logging.WARNING if other else logging.INFO, "engine: %s", choice.reason)
        correction = simulation.algorithm.parts.get("correction")
        if isinstance(correction, Correction):
            logger.info("correction: %s", correction.about(simulation.algorithm))
        if on_start is not None:
            on_start(choice.engine.name, choice.reason)
    everyone = All(callbacks if leads else ())
    listener = _Listener(everyone, simulation, folder, on_progress) if leads else Listener()
    try:
        everyone.on_start(about, [] if checkpoint is None else checkpoint.rows)
        with nullcontext() if folder is None else folder.signals():
            run = simulation.run(choice.engine, keeper=folder, listener=listener, start=checkpoint)
    except BaseException as problem:
        everyone.on_failure(problem)
        raise
    finally:
        choice.engine.close()
        everyone.close()
    result = Result.of(run, simulation, choice, about)
    if folder is not None:
        result.keep(folder)
    everyone.on_end(result)
    return result


class _Listener(Listener):
    """Tells callbacks of a run, and writes its history into the folder."""

    def __init__(
        self,
        callbacks: All,
        simulation: Simulation,
        folder: RunFolder | None,
        on_progress: Callable[[Progress], object] | None,
    ) -> None:
        self._callbacks, self._simulation, self._folder = callbacks, simulation, folder
        self._on_progress = on_progress

    def on_row(self, rows: list[Row], mean: Tensor, servers: Tensor) -> None:
        if self._folder is not None:
            self._folder.write_rows(rows)
        self.wants_end |= self._callbacks.on_row(rows[-1])
        if self._callbacks.wants_models:
            models = Models.of(self._simulation, int(rows[-1]["iteration"]), mean, servers)
            self.wants_end |= self._callbacks.on_models(models)

    def on_period(self, progress: Progress) -> None:
        self.wants_end |= self._callbacks.on_period(progress)
        if self._on_progress is not None:
            self.wants_end |= self._on_progress(progress) is True


def _check_folder(out: Any, resume: bool) -> None:
    if out is None and resume:
        raise InputError("resume", resume, "goes with out=, the folder that keeps the run")
    if not isinstance(out, str | Path | None):
        raise InputError("out", out, "the path of a folder")


def _draw(simulation: Simulation, folder: RunFolder, after: int | None) -> None:
    """Write what readers of a run need: the network, and a trace after the iteration `after`."""
    folder.write_json("network.json", simulation.drawn())
    graph = simulation.algorithm.network.graph
    links = sorted((min(link), max(link)) for link in graph.edges())
    folder.trace = Trace(folder.path / "trace.csv", links, after)
