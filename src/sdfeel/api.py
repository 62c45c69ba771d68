"""`sdfeel.train`: a model, clients' data, a network, a schedule and a scheme, in one call."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import nn

from sdfeel.algorithm.trainer import Trainer
from sdfeel.callbacks import All, Callback, check_callbacks
from sdfeel.errors import InputError
from sdfeel.network import Network
from sdfeel.records.checkpoints import Row
from sdfeel.records.folder import RunFolder
from sdfeel.records.trace import Trace
from sdfeel.simulation.evaluation import Metric
from sdfeel.simulation.loop import Progress
from sdfeel.simulation.named import name_of
from sdfeel.simulation.problem import Loss
from sdfeel.simulation.result import Result
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import (
    ClockWarning,
    NegativeMixingWarning,
    RoundingWarning,
    Simulation,
)
from sdfeel.simulation.words import WORDS

__all__ = [
    "ClockWarning", "NegativeMixingWarning", "Result", "RoundingWarning", "assembled", "carry_out",
    "document", "train",
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
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], object] = lambda _: None,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Train `model` over the clients' data by a scheme (Algorithm 1), with a simulated clock.

    model            any nn.Module; it is not changed. A float64 model trains in float64
    client_datasets  for each client a pair of arrays or a map-style dataset; or a
                     `ClientData`; or one dataset for all, with `partition`. Datasets are read
                     once: a transform that is random is frozen
    network          clusters and graph; `Network.ring(servers=10, clients_per_server=5)`
    loss             loss(outputs, targets), the mean over a batch; cross-entropy by default
    metrics          name -> metric(outputs, targets); accuracy by default with cross-entropy
    test             a dataset or (inputs, targets) that no client holds
    partition        of one dataset for all: a name of `sdfeel.data.PARTITIONS`, or row numbers
    trainers         an object for each client that does its local updates: a `Trainer`, as in a
                     deployment; then `local` and `lr` are its own business
    clients          with `flower`: how many; those of the network
    rounds           with `flower`, in place of `steps`: how often a client is asked to train, once
                     in an upload period of tau1 steps
    initial          with `flower`: the first model, a state dict or a list of arrays; by default
                     what `model` holds, which is only needed for `test`
    samples          with `flower`: num-examples of each client; by default each is asked once
    out, resume      folder that keeps the run; go on from its checkpoint. Then Ctrl-C and SIGTERM
                     end the run after the current step with a checkpoint
    config           what the folder is to say of the run, in place of its settings
    on_start         called with the engine's name and why it is this one
    on_progress      called with a `Progress` now and then; if it answers True the run ends there,
                     with a whole result
    callbacks        objects of `sdfeel.callbacks`, or your own: told of every evaluation and
                     period, and able to end the run

    Started by `torchrun`, the same call spreads the clusters over its ranks.
    """
    simulation, trainers = assembled(
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
    return carry_out(
        simulation,
        out=out,
        resume=resume,
        config=config,
        trainers=trainers,
        on_start=on_start,
        on_progress=on_progress,
        callbacks=callbacks,
    )


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
    _refuse(clients=clients, rounds=rounds, initial=initial, samples=samples)
    for word, value in settings.items():
        if word in WORDS:
            raise InputError(word, value, WORDS[word][1])
    if "steps" not in settings:
        raise InputError("steps", None, "is needed: the number of iterations K")
    simulation = Simulation.assemble(
        model,
        client_datasets,
        Settings.of(settings),
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
    on_start: Callable[[str, str], None] = lambda *_: None,
    on_progress: Callable[[Progress], object] = lambda _: None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Run a simulation to its end; `config` is what the folder says of it."""
    check_callbacks(callbacks)
    _check_folder(out, resume)
    simulation.warn()
    simulation.warn_of_clock(own=trainers is not None)
    if trainers is not None:
        simulation = simulation.by_periods()
    leads, name = simulation.ranks.leads, simulation.settings.engine
    folder, kept = None, None
    own = {"seed": simulation.settings.seed, "scheme": simulation.algorithm.scheme}
    about = {**(simulation.about() if config is None else config), **own}
    if out is not None:
        mark = simulation.fingerprint()
        folder = RunFolder(out, mark, simulation.settings.checkpoint_seconds, writes=leads)
        found = folder.create(about, resume)
        if found is not None:
            kept, wrote = found
            name = wrote if name == "auto" else name
        if leads:
            _draw(simulation, folder, None if kept is None else kept.iteration)
    choice = simulation.engine(name) if trainers is None else simulation.engine_of(trainers)
    if folder is not None:
        folder.led_by(choice.engine.name, choice.engine.about())
    if leads:
        other = choice.engine.name not in (name, "trainers") and name != "auto"
        logger.log(logging.WARNING if other else logging.INFO, "engine: %s", choice.reason)
        correction = simulation.algorithm.correction
        if correction is not None:
            logger.info("correction: %s", correction.about(simulation.algorithm))
        on_start(choice.engine.name, choice.reason)
    told = All(callbacks if leads else ())

    def on_row(rows: list[Row]) -> bool:
        if folder is not None and leads:
            folder.write_rows(rows)
        return told.on_row(rows[-1])

    try:
        told.on_start(about, [] if kept is None else kept.rows)
        with nullcontext() if folder is None else folder.signals():
            outcome = simulation.run(
                choice.engine,
                keeper=folder,
                on_progress=on_progress if leads else lambda _: None,
                on_row=on_row,
                on_round=told.on_round,
                start=kept,
            )
    except BaseException as problem:
        told.on_failure(problem)
        raise
    finally:
        choice.engine.close()
        told.close()
    result = Result.of(outcome, simulation, choice, about)
    if folder is not None:
        result.keep(folder)
    told.on_end(result)
    return result


def _check_folder(out: Any, resume: bool) -> None:
    if out is None and resume:
        raise InputError("resume", resume, "goes with out=, the folder that keeps the run")
    if not isinstance(out, str | Path | None):
        raise InputError("out", out, "the path of a folder")


def _draw(simulation: Simulation, folder: RunFolder, after: int | None) -> None:
    """What the folder has for those who look at a run; after: the iteration it goes on from."""
    folder.write_json("network.json", simulation.drawn())
    graph = simulation.algorithm.network.graph
    links = sorted((min(link), max(link)) for link in graph.edges())
    folder.trace = Trace(folder.path / "trace.csv", links, after)


def document(function: Any, left_out: Sequence[str] = (), needed: Sequence[str] = ()) -> None:
    """The settings as arguments of a function that takes them, with defaults and what they are.

    left_out  those that it does not take; needed: those without a default
    """
    described, options = [], []
    for name, field in Settings.model_fields.items():
        if name in left_out:
            continue
        described.append(f"    {name:<19} {field.description}")
        default = inspect.Parameter.empty if name in needed else field.default
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default))
    own, _, ending = str(function.__doc__).rstrip().partition("\n\n    Started by ")
    last = [f"    Started by {ending}\n"] if ending else [""]
    function.__doc__ = "\n".join([own.rstrip(), "", *described, "", *last])
    signature = inspect.signature(function)
    given = [
        p.replace(annotation=p.empty)
        for p in signature.parameters.values()
        if p.kind is not p.VAR_KEYWORD
    ]
    function.__signature__ = signature.replace(parameters=[*given, *options])


document(train, needed=["steps"])
