"""Codecs between servers without rounds: each neighbour holds something of a server, by link.

Where all servers are ready together they exchange over all links, as Algorithm 1 does; else one
server swaps with its neighbours. Every run is made once more in plain numpy, from the stream of its
events.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from sdfeel.algorithm.events import Event
from sdfeel.algorithm.methods.codecs import CODECS, Codec, Draw
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
    settings = Settings.of({"pace": "asynchronous", "seed": SEED, **options})
    return settings.algorithm(network, sdfeel.load_profile(options["profile"]), size)


def descended(problem: Problem, client: int, start: Array, steps: int) -> Array:
    """Eq. (2) with the whole data of a client, whose loss is a cross-entropy: by its formula."""
    x, y = problem.inputs[client].astype(float), problem.targets[client]
    classes = 3
    W, b = start[: classes * x.shape[1]].reshape(classes, -1).copy(), start[-classes:].copy()
    for _ in range(steps):
        scores = np.exp(x @ W.T + b)
        error = scores / scores.sum(axis=1, keepdims=True) - np.eye(classes)[y]
        W, b = W - LR * error.T @ x / len(x), b - LR * error.mean(axis=0)
    return np.concatenate([W.ravel(), b])


def events_of(known: Algorithm) -> Iterator[Event]:
    """The events of a run of STEPS: the last is the first that comes to them."""
    before = [0]

    def goes_on(event: Event) -> bool:
        earlier, before[0] = before[0], event.k
        return earlier < STEPS

    return takewhile(goes_on, known.events(STEPS))


def by_hand(problem: Problem, known: Algorithm, between: Codec, up: Codec) -> Array:
    """The run in plain numpy: held[a, b] is what b holds of a's model."""
    servers, start = len(CLUSTERS), vector(problem.model).astype(float)
    models = np.stack([start] * servers)
    begun, owed = models.copy(), np.zeros((len(SAMPLES), len(start)))
    held = {(a, b): start.copy() for a in range(servers) for b in range(servers)}
    for event in events_of(known):
        for group in event.groups:
            d, clients = group.server, zip(group.clients, group.first, group.last, strict=True)
            move = np.zeros_like(start)
            for place, (i, first, last) in enumerate(clients):
                change = descended(problem, i, begun[d], last - first + 1) - begun[d] + owed[i]
                draw = Draw(SEED, np.array([i]), int(last))
                arrived = up.through("up", change[None], draw)[0]
                owed[i] = change - arrived if up.feeds_back else 0.0
                stretch = 1.0 if group.stretch is None else group.stretch[place]
                move += group.shares[place] * stretch * arrived
            models[d] += group.scale * move
        if event.mixing is not None:
            models = exchanged(event, models, held, between)
        for group in event.groups:
            begun[group.server] = models[group.server]
    return models


def exchanged(
    event: Event, models: Array, held: dict[tuple[int, int], Array], codec: Codec
) -> Array:
    """Both ends of every link that is used apply one difference, with opposite sign."""
    mixing = event.mixing
    assert mixing is not None
    places = np.array(range(len(models)) if mixing.among is None else mixing.among)
    for number in range(mixing.exchanges):
        before, weights = models.copy(), np.zeros((len(models), len(models)))
        weights[np.ix_(places, places)] = mixing.exchange(number)
        np.fill_diagonal(weights, 0.0)
        pairs = list(zip(*np.nonzero(weights + weights.T), strict=True))
        for sender, receiver in pairs:
            stamp = event.number if mixing.among else event.k
            draw = Draw(SEED, np.array([sender]), stamp, 2 + number)
            change = before[sender] - held[sender, receiver]
            arrived = codec.through("between", change[None], draw)[0]
            held[sender, receiver] = held[sender, receiver] + arrived
        for j, d in pairs:
            models[d] += weights[j, d] * (held[j, d] - held[d, j])
    return models


# With a downlink, servers begin anew when the slowest of those who come has the model: so all are
# ready together once, and then each by itself.
TOGETHER = {"profile": "paper"}
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
    expected = by_hand(four, known, ways["between"], ways["up"])
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


@pytest.mark.parametrize("where", [TOGETHER, APART], ids=["together", "apart"])
def test_the_mean_stays_where_it_is_whatever_is_rounded_off(four, monkeypatch, where) -> None:
    moves: list[float] = []
    mix = sdfeel.simulation.state.State.mix

    def watched(state: Any, event: Event) -> None:
        before = state.mean()
        mix(state, event)
        moves.append(float((state.mean() - before).abs().max()))

    monkeypatch.setattr(sdfeel.simulation.state.State, "mix", watched)
    own = {"schedule": Schedule(2, 2, 2), "codecs": {"between": "int8"}, **where}
    train(four, **own)
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
