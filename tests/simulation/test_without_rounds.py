"""Codecs between servers, corrections, clipping and lying servers, without rounds.

Where all servers are ready together they exchange over all links, as Algorithm 1 does; else one
server swaps with its neighbours. Every run is made once more in plain numpy, from the stream of its
events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import InputError, Network, Schedule
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.events import Event, Group
from sdfeel.algorithm.methods.codecs import CODECS, Codec, Draw, Float32
from sdfeel.algorithm.methods.rates import rates
from sdfeel.simulation.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

Array = NDArray[np.float64]
CLUSTERS = [[0], [1, 2, 3, 4], [5, 6], [7, 8, 9]]
SAMPLES = (12, 15, 9, 20, 14, 11, 8, 17, 10, 13)
STEPS, LR = 12, 0.1
SEED = 3

# What is the same for all: full batches, so that a gradient is one of all data of a client.
COMMON: dict[str, Any] = {
    "pace": "asynchronous", "steps": STEPS, "lr": LR, "batch_size": 100, "seed": SEED,
    "evaluate_every": 4, "engine": "reference",
}  # fmt: skip


@pytest.fixture
def four() -> Problem:
    problem = classification(SAMPLES, CLUSTERS, "ring", dtype=torch.float64)
    problem.network = problem.network.with_samples(SAMPLES)
    return problem


def train(problem: Problem, **options: Any) -> sdfeel.Result:
    own = {"network": problem.network, **COMMON, **options}
    return sdfeel.train(problem.model, problem.datasets, **own)


def algorithm(network: Network, size: int, **options: Any) -> Algorithm:
    settings = Settings.of({"pace": "asynchronous", "seed": SEED, "lr": LR, **options})
    return settings.algorithm(network, sdfeel.load_profile(options["profile"]), size)


def descended(problem: Problem, client: int, start: Array, etas: Array, shift: Array) -> Array:
    """Eq. (2) with the whole data of a client, whose loss is a cross-entropy: by its formula."""
    x, y = problem.inputs[client].astype(float), problem.targets[client]
    classes = 3
    w = start.copy()
    for eta in etas:
        scores = np.exp(x @ w[:-classes].reshape(classes, -1).T + w[-classes:])
        error = scores / scores.sum(axis=1, keepdims=True) - np.eye(classes)[y]
        gradient = np.concatenate([(error.T @ x / len(x)).ravel(), error.mean(axis=0)])
        w = w - eta * (gradient + shift)
    return w


def events_of(known: Algorithm) -> Iterator[Event]:
    """The events of a run of STEPS: the last is the first that comes to them."""
    before = [0]

    def goes_on(event: Event) -> bool:
        earlier, before[0] = before[0], event.k
        return earlier < STEPS

    return takewhile(goes_on, known.events(STEPS))


@dataclass
class ByHand:
    """A run in plain numpy.

    held   [a, b]: what b holds of a's model; owed: by clients, what their codec left out
    z      of clients, by which the correction shifts their gradients
    moves  how far clients moved each server, the newest last
    last   each server's model after its last exchange
    """

    problem: Problem
    known: Algorithm
    between: Codec = field(default_factory=Float32)
    up: Codec = field(default_factory=Float32)
    is_corrected: bool = False
    factor: float | None = None
    liar: int | None = None

    def __post_init__(self) -> None:
        servers, start = len(CLUSTERS), vector(self.problem.model).astype(float)
        self.models = np.stack([start] * servers)
        self.begun, self.last = self.models.copy(), self.models.copy()
        self.held = {(a, b): start.copy() for a in range(servers) for b in range(servers)}
        self.owed, self.z = np.zeros((2, len(SAMPLES), len(start)))
        self.moves: list[list[float]] = [[] for _ in range(servers)]

    def run(self) -> Array:
        """Return the servers' models at the end."""
        for event in events_of(self.known):
            for group in event.groups:
                if len(group.clients):
                    self.take(group)
            if event.mixing is not None:
                self.mix(event)
            for group in event.groups:
                self.begun[group.server] = self.models[group.server]
        return self.models

    def take(self, group: Group) -> None:
        """Eq. (3), normalised by the numbers of steps; and z of those who were there."""
        d, begun = group.server, self.begun[group.server].copy()
        samples = np.array(SAMPLES)[group.clients]
        shares, steps = samples / samples.sum(), group.last - group.first + 1
        centre = shares @ self.z[group.clients] if len(shares) < len(CLUSTERS[d]) else 0.0
        move, slopes = np.zeros_like(begun), []
        for share, i, first, last in zip(
            shares, group.clients, group.first, group.last, strict=True
        ):
            etas = rates(self.known.rate, first, last)
            shift = self.z[i] - centre if self.is_corrected else np.zeros_like(begun)
            change = descended(self.problem, i, begun, etas, shift) - begun + self.owed[i]
            draw = Draw(SEED, np.array([i]), int(last))
            arrived = self.up.through("up", change[None], draw)[0]
            self.owed[i] = change - arrived if self.up.feeds_back else 0.0
            move += share * (shares @ steps) / len(etas) * arrived
            slopes.append(change / etas.sum())
        self.z[group.clients] += slopes - shares @ np.array(slopes)
        self.models[d] += group.scale * move
        self.moves[d].append(float(np.linalg.norm(group.scale * move)))

    def mix(self, event: Event) -> None:
        """Both ends of every link that is used apply one difference, with opposite sign."""
        mixing, servers = event.mixing, len(self.models)
        assert mixing is not None
        places = np.array(range(servers) if mixing.among is None else mixing.among)
        for number in range(mixing.exchanges):
            before, weights = self.models.copy(), np.zeros((servers, servers))
            weights[np.ix_(places, places)] = mixing.exchange(number)
            np.fill_diagonal(weights, 0.0)
            pairs = list(zip(*np.nonzero(weights + weights.T), strict=True))
            for sender, receiver in pairs:
                stamp = event.number if mixing.among else event.k
                draw = Draw(SEED, np.array([sender]), stamp, 2 + number)
                change = before[sender] - self.held[sender, receiver]
                arrived = self.between.through("between", change[None], draw)[0]
                self.held[sender, receiver] = self.held[sender, receiver] + arrived
            for j, d in pairs:
                change = self.held[j, d] - self.held[d, j]
                if (
                    j == self.liar
                ):  # it says the opposite of what it learned since it last met others
                    change = self.last[j] - 10 * (before[j] - self.last[j]) - before[d]
                self.models[d] += weights[j, d] * self.clipped(change, j, d)
        self.last[places] = self.models[places]

    def clipped(self, change: Array, sender: int, receiver: int) -> Array:
        """Return no more of a change than clients usually move both ends; a liar claims any."""
        if self.factor is None:
            return change
        ends = [receiver] if sender == self.liar else [sender, receiver]
        usual = [np.median(self.moves[d][-20:]) if self.moves[d] else 0.0 for d in ends]
        return change * min(1.0, self.factor * float(min(usual)) / float(np.linalg.norm(change)))


# With a downlink, servers begin anew when the slowest of those who come has the model: so all are
# ready together once, and then each by itself.
TOGETHER = {"profile": "paper"}
DIFFERENT = {"profile": "paper-h10", "schedule": Schedule(3, 2, 2)}
APART = {"profile": "paper-downlink", "participation": 0.6, "schedule": Schedule(2, 1, 2)}


@pytest.mark.filterwarnings("ignore:codecs.up")  # error feedback, while some are away
@pytest.mark.parametrize("where", [TOGETHER, APART], ids=["together", "apart"])
@pytest.mark.parametrize(
    ("between", "up", "averager"),
    [
        ("int8", "float32", "paper"),
        ("int8", "top-k", "metropolis"),
        ("int4", "float32", "metropolis"),
        ("float16", "int8", "exact"),
    ],
)
def test_a_run_is_what_the_equations_say(
    four, tmp_path: Path, where, between, up, averager
) -> None:
    """And a resumed one is the same bit for bit."""
    ways = {"between": CODECS[between](), "up": CODECS[up]()}
    own = {"schedule": Schedule(2, 2, 2), "codecs": ways, "averager": averager, **where}
    result = train(four, **own)
    known = algorithm(four.network, vector(four.model).size, **own)
    kinds = {event.mixing.among is None for event in events_of(known) if event.mixing is not None}
    assert kinds == ({True} if where is TOGETHER else {True, False})
    expected = ByHand(four, known, ways["between"], ways["up"]).run()
    np.testing.assert_allclose(result.servers.numpy(), expected, rtol=0, atol=1e-10)
    train(four, **own | {"steps": 5}, out=tmp_path)
    rest = train(four, **own, out=tmp_path, resume=True)
    assert torch.equal(rest.servers, result.servers)


@pytest.mark.parametrize("between", ["int8", "int4"])
def test_servers_that_are_ready_together_do_what_algorithm_1_does(four, between) -> None:
    """Every neighbour then holds the same of a server: what it holds in rounds."""
    own = {"profile": "paper", "schedule": Schedule(3, 1, 2), "averager": "metropolis"}
    own["codecs"] = {"between": between}
    mine, theirs = train(four, **own), train(four, **own, pace="synchronous")
    np.testing.assert_allclose(mine.servers, theirs.servers, rtol=0, atol=1e-12)
    plain = train(four, **own | {"codecs": {}})
    assert (mine.servers - plain.servers).abs().max() > 1e-6, "nothing was rounded"


@pytest.mark.parametrize("averager", ["paper", "clipped"])
@pytest.mark.parametrize("where", [TOGETHER, APART], ids=["together", "apart"])
def test_the_mean_stays_whatever_is_rounded_off_or_clipped(
    four, monkeypatch, where, averager
) -> None:
    moves: list[float] = []
    mix = sdfeel.simulation.state.State.mix

    def watched(state: Any, event: Event) -> None:
        before = state.mean()
        mix(state, event)
        moves.append(float((state.mean() - before).abs().max()))

    monkeypatch.setattr(sdfeel.simulation.state.State, "mix", watched)
    own = {"schedule": Schedule(2, 2, 2), "codecs": {"between": "int8"}, **where}
    train(four, **own, averager=averager)
    assert len(moves) > 4
    assert max(moves) < 1e-13


def test_what_leaves_values_out_is_refused(four) -> None:
    with pytest.raises(InputError, match=r"codecs\.between.*leaves values out"):
        train(four, profile="paper", codecs={"between": "top-k"}, averager="metropolis")


@pytest.mark.parametrize("scheme", ["fedasync", "fedbuff"])
def test_a_star_has_no_servers_to_meet(four, scheme) -> None:
    options = {"profile": "paper", "pace": "synchronous", "codecs": {"between": "int8"}}
    with pytest.raises(InputError, match=r"codecs\.between.*several servers"):
        train(four, scheme=scheme, **options)


@pytest.mark.parametrize("where", [TOGETHER, DIFFERENT, DIFFERENT | {"participation": 0.6}])
@pytest.mark.parametrize("lr", [LR, sdfeel.Inverse(LR, k0=5)])
def test_corrected_clients_are_what_the_equations_say(four, tmp_path: Path, where, lr) -> None:
    """With the number of steps and the rates of each, and re-centred over those who are there."""
    own = {"schedule": Schedule(3, 2, 2), "averager": "metropolis", "lr": lr, **where}
    own["correction"] = "clients"
    known = algorithm(four.network, vector(four.model).size, **own)
    truth = ByHand(four, known, is_corrected=True)
    result = train(four, **own)
    np.testing.assert_allclose(result.servers.numpy(), truth.run(), rtol=0, atol=1e-10)
    for members in CLUSTERS:
        shares = np.array(SAMPLES)[members] / sum(np.array(SAMPLES)[members])
        np.testing.assert_allclose(shares @ truth.z[members], 0.0, atol=1e-12)
    assert np.abs(truth.z).max() > 0.01
    train(four, **own | {"steps": 5}, out=tmp_path)
    rest = train(four, **own, out=tmp_path, resume=True)
    assert torch.equal(rest.servers, result.servers)


def test_corrected_clients_end_in_the_optimum_of_their_cluster(four) -> None:
    """Where clusters have the same data, that is everybody's; uncorrected they stop short."""
    twice = classification((30, 14, 22) * 2, [[0, 1, 2], [3, 4, 5]], dtype=torch.float64)
    for parts in (twice.inputs, twice.targets):
        parts[3:] = [part.copy() for part in parts[:3]]
    slopes = []
    for correction in ("clients", None):
        own = {"profile": "paper-h10", "schedule": Schedule(5, 1, 1), "lr": 0.3, "steps": 4000}
        own |= {"evaluate_every": 4000, "optimizer": sdfeel.SGD(weight_decay=0.02)}
        result = train(twice, correction=correction, **own)
        slopes.append(slope(twice, result.model))
    assert slopes[0] < 1e-6
    assert slopes[1] > 1e-3


def slope(problem: Problem, model: torch.nn.Module) -> float:
    """The norm of the gradient of the whole loss, weight decay included."""
    inputs, targets = np.concatenate(problem.inputs), np.concatenate(problem.targets)
    outputs = model(torch.from_numpy(inputs).double())
    loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(targets))
    loss = loss + 0.01 * sum((w**2).sum() for w in model.parameters())
    return float(
        torch.cat([g.ravel() for g in torch.autograd.grad(loss, [*model.parameters()])]).norm()
    )


@pytest.mark.parametrize(
    "where", [TOGETHER, APART, DIFFERENT], ids=["together", "apart", "different"]
)
@pytest.mark.parametrize(("liar", "between"), [(None, "float32"), (None, "int8"), (1, "float32")])
def test_clipped_swaps_are_what_the_equations_say(
    four, tmp_path: Path, where, liar, between
) -> None:
    """A liar's neighbours take no more of it than their own clients usually move them."""
    own = {"schedule": Schedule(2, 2, 2), "averager": sdfeel.Clipped(factor=0.5), **where}
    own["codecs"] = {"between": between}
    if liar is not None:
        own["attacks"] = {"servers": {liar: "sign-flip"}}
    known = algorithm(four.network, vector(four.model).size, **own)
    truth = ByHand(four, known, CODECS[between](), factor=0.5, liar=liar)
    result = train(four, **own)
    np.testing.assert_allclose(result.servers.numpy(), truth.run(), rtol=0, atol=1e-10)
    free = train(four, **own | {"averager": "metropolis"})
    assert (free.servers - result.servers).abs().max() > 1e-4, "nothing was clipped"
    train(four, **own | {"steps": 5}, out=tmp_path)
    rest = train(four, **own, out=tmp_path, resume=True)
    assert torch.equal(rest.servers, result.servers)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"averager": "trimmed"}, "averager.*needs rounds"),
        ({"correction": "two-level"}, "correction.*needs rounds"),
        ({"correction": "servers"}, "correction.*needs rounds"),
        ({"attacks": {"servers": {1: "spectral"}}}, "attacks.*needs rounds"),
        ({"correction": "clients", "scheme": "fedbuff", "pace": "synchronous"}, "several clients"),
    ],
)
def test_what_needs_rounds_is_refused(four, options, words) -> None:
    with pytest.raises(InputError, match=words):
        train(four, profile="paper-h10", **options)
