"""What one process of the benchmark carries out, again and again: its job."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - as everybody writes it

from sdfeel.algorithm.methods.optimizers import OPTIMIZERS
from sdfeel.algorithm.schedule import Schedule
from sdfeel.data import ClientData, Pixels
from sdfeel.engines.choose import ENGINES
from sdfeel.errors import InputError, closest
from sdfeel.models import build, mlp
from sdfeel.network import Network
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation
from sdfeel.simulation.state import State
from speed.plain_loop import PlainLoop
from speed.zoo import LAYERS, ZOO, ZOO_SHAPES

__all__ = [
    "LOSSES",
    "SHAPES",
    "Contender",
    "Job",
    "Parts",
    "make_contender",
    "make_model",
    "simulation_of",
]

SHAPES: dict[str, tuple[int, ...]] = {
    "mnist-cnn": (1, 28, 28),
    "cifar-cnn": (3, 32, 32),
    "mlp": (1, 28, 28),
    **ZOO_SHAPES,
}
TAU1, ALPHA = 5, 5  # tau1 as in figures 5 and 6 of the paper
EVALUATE_EVERY = 50
TEST_SAMPLES = 10_000
PRODUCT = 2048  # rows and columns of the matrices whose product is timed

# Real seconds by what they went into; "work" is what the units are counted in.
Parts = dict[str, float]


def _focal(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the focal loss: one that a user would write, which no table knows."""
    missed = F.log_softmax(outputs, dim=-1).gather(-1, targets[:, None])
    return -((1 - missed.exp()).square() * missed).mean()


# Losses by name: with class numbers as targets, or else numbers as many as the outputs.
LOSSES: dict[str, Callable[[Any, Any], Tensor]] = {
    "cross-entropy": F.cross_entropy,
    "label smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
    "class weights": nn.CrossEntropyLoss(weight=torch.arange(1.0, 11.0)),
    "own (focal)": _focal,
    "mse": F.mse_loss,
    "bce": F.binary_cross_entropy_with_logits,
    "smooth l1": F.smooth_l1_loss,
}
OF_NUMBERS = ("mse", "bce", "smooth l1")


@dataclass(frozen=True)
class Job:
    """Who (kind) trains what: `plain-loop`, `plain-loop-onednn-off`, an engine, `auto`, `matmul`
    or `train`.

    A segment is what lies between two aggregations: tau1 iterations of every client.
    """

    kind: str
    threads: int = 1
    model: str = "mnist-cnn"
    width: int = 200  # of the hidden layer of an mlp
    clients: int = 50
    samples: int = 100  # of each client
    servers: int = 10
    batch_size: int = 10
    tau1: int = TAU1
    pixels: bool = False  # whether images are bytes in memory, as those of `sdfeel run` are
    loss: str = "cross-entropy"  # a name of `LOSSES`
    optimizer: str = "sgd"
    aggregate: bool = False  # whether aggregation is carried out (and timed) after each segment

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Contender(Protocol):
    """Something that works in segments."""

    warms_up: bool
    engine: str  # its name, if it is one

    def run(self, segments: int) -> tuple[float, Parts]:
        """Carry out segments: how much was done (client steps or FLOPs), and in what time."""


def make_model(job: Job) -> nn.Module:
    """The job's model, with the same first values everywhere."""
    if job.model == "mlp" or job.model in {**ZOO, **LAYERS}:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            own = {**ZOO, **LAYERS}.get(job.model)
            return own() if own else mlp(math.prod(SHAPES["mlp"]), (job.width,))
    if job.model not in SHAPES:
        raise InputError("model", job.model, closest(job.model, SHAPES))
    return build(job.model, SHAPES[job.model], classes=10, seed=0)


def synthetic_data(job: Job) -> ClientData:
    """Random images and labels: the time of a step does not depend on what they show."""
    rows = job.clients * job.samples
    generator = torch.Generator().manual_seed(0)
    shape = (rows, *SHAPES[job.model])
    inputs: torch.Tensor | Pixels
    if job.pixels:
        inputs = Pixels(torch.randint(256, shape, generator=generator, dtype=torch.uint8))
    else:
        inputs = torch.rand(shape, generator=generator)
    targets = torch.randint(0, 10, (rows,), generator=generator)
    if job.loss in OF_NUMBERS:
        targets = F.one_hot(targets, 10).float()
    return ClientData(inputs, targets, np.arange(job.clients + 1) * job.samples)


def network_of(job: Job) -> Network:
    """A ring; clusters as even as they can be."""
    servers = min(job.servers, job.clients)
    sizes = [len(part) for part in np.array_split(np.arange(job.clients), servers)]
    return Network.build("ring" if servers > 2 else "path", servers, sizes)


def simulation_of(job: Job, **more: Any) -> Simulation:
    """The same simulation for every contender of a setting; `more` are other settings of a run."""
    schedule = Schedule(job.tau1, 1, ALPHA)
    given = {"schedule": schedule, "batch_size": job.batch_size, "train_samples": 1}
    given |= {"optimizer": OPTIMIZERS[job.optimizer]()}
    settings = Settings.of({**given, **more})
    data = synthetic_data(job)
    model, loss = make_model(job), LOSSES[job.loss]
    return Simulation.assemble(model, data, settings, network=network_of(job), loss=loss)


def make_contender(job: Job, **more: Any) -> Contender:
    """From a job to what carries it out; `Unsupported` if an engine cannot.

    Args:
        job: what is to be done.
        more: other settings of a run, for an engine.
    """
    if job.kind == "matmul":
        return _Product()
    if job.kind == "train":
        return _Train(job)
    if job.kind in ("plain-loop", "plain-loop-onednn-off"):
        return _Loop(job)
    if job.kind in ENGINES or job.kind == "auto":
        return _Engine(job, more)
    known = [*ENGINES, "auto", "plain-loop", "matmul", "train"]
    raise InputError("kind", job.kind, closest(job.kind, known))


class _Product:
    """FLOPs of one large matrix product after the other."""

    warms_up, engine = True, ""

    def __init__(self) -> None:
        self._a, self._b = torch.rand(PRODUCT, PRODUCT), torch.rand(PRODUCT, PRODUCT)
        self._out = torch.empty(PRODUCT, PRODUCT)

    def run(self, segments: int) -> tuple[float, Parts]:
        begin = time.perf_counter()
        for _ in range(segments):
            torch.mm(self._a, self._b, out=self._out)
        return segments * 2.0 * PRODUCT**3, {"work": time.perf_counter() - begin}


class _Loop:
    warms_up, engine = True, ""

    def __init__(self, job: Job) -> None:
        # Small convolutions are slow in oneDNN on some processors: the other way is timed as well.
        torch.backends.mkldnn.enabled = job.kind == "plain-loop"  # type: ignore[assignment]
        self._loop, self._job, self._k = PlainLoop(simulation_of(job).problem), job, 0

    def run(self, segments: int) -> tuple[float, Parts]:
        begin = time.perf_counter()
        for _ in range(segments):
            self._loop.local_updates(self._k + 1, self._k + self._job.tau1)
            self._k += self._job.tau1
        seconds = time.perf_counter() - begin
        return float(segments * self._job.tau1 * self._job.clients), {"work": seconds}


class _Engine:
    """An engine as the training loop calls it."""

    warms_up = True

    def __init__(self, job: Job, more: dict[str, Any]) -> None:
        simulation = simulation_of(job, **more)
        auto = job.kind == "auto"
        own = simulation.engine("auto").engine if auto else ENGINES[job.kind](simulation.problem)
        self._engine, self.engine = own, own.name
        self._state = State(
            simulation.problem, simulation.algorithm, simulation.start, simulation.ranks
        )
        self._events, self._job = simulation.algorithm.events(), job

    def run(self, segments: int) -> tuple[float, Parts]:
        parts = {"work": 0.0, "aggregation": 0.0}
        for _ in range(segments):
            event = next(self._events)
            begin = time.perf_counter()
            trained = self._state.train([event], self._engine, lambda: False)
            self._state.take(event, trained)
            middle = time.perf_counter()
            if self._job.aggregate:
                self._state.mix(event)
            self._state.begin(event)
            parts["work"] += middle - begin
            parts["aggregation"] += time.perf_counter() - middle
        return float(segments * self._job.tau1 * self._job.clients), parts


class _Train:
    """A whole run through `sdfeel.train`: its memory, and what its time goes into."""

    warms_up, engine = False, ""

    def __init__(self, job: Job) -> None:
        self._job = job

    def run(self, segments: int) -> tuple[float, Parts]:
        from sdfeel.api import train

        job = self._job
        test = synthetic_data(replace(job, clients=1, samples=TEST_SAMPLES))
        result = train(
            make_model(job),
            synthetic_data(job),
            network=network_of(job),
            schedule=Schedule(job.tau1, 1, ALPHA),
            steps=segments * job.tau1,
            batch_size=job.batch_size,
            test=(test.inputs, test.targets),
            evaluate_every=EVALUATE_EVERY,
        )
        rest = result.elapsed - sum(result.phases.values())
        parts = {**result.phases, "everything else": rest, "work": result.elapsed}
        return float(result.client_steps), parts
