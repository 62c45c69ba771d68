"""Whatever is asked together is trained, or refused by an InputError: nothing else happens.

Combinations are drawn by seed from everything that has a choice. What is trained ends where it was
asked to, and a run that was stopped and resumed is the uninterrupted one, bit for bit.
"""

from __future__ import annotations

import os
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import sdfeel
from sdfeel import InputError, Network, Schedule
from sdfeel.clock import Exponential

# Parts of the test, and combinations in each.
PARTS, COMBINATIONS = (300, 12) if os.environ.get("SDFEEL_LONG") else (5, 12)
CLIENTS, STEPS = 12, 6


def matching(number: int) -> list[tuple[int, int]]:
    """Return the pairs of servers that meet in a round: every other link of a ring."""
    first = number % 2
    return [(first, first + 1), (first + 2, (first + 3) % 4)]


UNEQUAL = Network.ring(servers=4, clients_per_server=[1, 5, 2, 4])
NETWORKS = (
    Network.ring(servers=4, clients_per_server=3),
    UNEQUAL,
    Network.build("star", 3, 4),
    UNEQUAL.changing(matching),
)
SOMETIMES_OFF = replace(sdfeel.load_profile("paper-h4"), availability=Exponential(on=3.0, off=0.5))

# Of every setting: what it is where nothing is said, and what else it may be.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "scheme": ("sd-feel", *sdfeel.SCHEMES),
    "pace": (
        "synchronous", "asynchronous", "asynchronous", sdfeel.Deadline(seconds=50.0),
        sdfeel.Deadline(seconds=50.0, ends_early=True), sdfeel.FedBuff(size=3), "fedasync",
        sdfeel.Asynchronous(mixing="stale-weights", compensation=0.5),
    ),
    "profile": ("paper", "paper-h4", "paper-downlink", "counted", SOMETIMES_OFF),
    "schedule": (
        Schedule(2, 1, 1), Schedule(2, 2, 2), Schedule(1, 1, 1), Schedule(lambda r: 1 + r % 2, 1, 1)
    ),
    "participation": (1.0, 0.6),
    "averager": (
        "paper", "metropolis", "chebyshev", "all-reduce", "finite-time", "exact", "clipped",
        "trimmed", sdfeel.Clipped(ends="own"),
    ),
    "correction": (
        None, "two-level", "clients", "servers", "mtgc", sdfeel.Correction("clients", limit=1.0)
    ),
    "server_optimizer": ("mean", "fedadam", "fedavgm", "fedyogi"),
    "averaging_rule": ("mean", "median", "clip", "trimmed", "history-clip"),
    "optimizer": (
        "sgd", "adam", sdfeel.Momentum(0.9), sdfeel.Momentum(0.9, memory="keep"),
        sdfeel.SGD(prox=0.1, clip=1.0),
    ),
    "up": ("float32", "int8", "top-k", "int4"),
    "down": ("float32", "int8", "top-k"),
    "between": ("float32", "int8", "float16", "int4", "top-k"),
    "attacks": (
        None, {"servers": {1: "sign-flip"}}, {"clients": {3: "alie"}},
        {"servers": {1: "dissensus"}, "clients": {0: "mimic"}},
    ),
}  # fmt: skip


def combination(dice: random.Random) -> dict[str, Any]:
    """Return a few settings beside what is usual: of too many at once most are refused."""
    chosen = {name: choices[0] for name, choices in SETTINGS.items()}
    for name in dice.sample(list(SETTINGS), dice.randint(2, 7)):
        chosen[name] = dice.choice(SETTINGS[name])
    codecs = {way: chosen.pop(way) for way in ("up", "down", "between")}
    return {
        **chosen,
        "codecs": codecs,
        "network": dice.choice(NETWORKS),
        "seed": dice.randint(0, 9),
    }


def train(**settings: Any) -> sdfeel.Result:
    inputs = torch.randn(20 * CLIENTS, 6, generator=torch.Generator().manual_seed(0))
    targets = (inputs.sum(dim=1) > 0).long()
    clients = [(inputs[i::CLIENTS], targets[i::CLIENTS]) for i in range(CLIENTS)]
    torch.manual_seed(0)
    usual = {"steps": STEPS, "lr": 0.05, "evaluate_every": 3, "engine": "reference"}
    return sdfeel.train(nn.Linear(6, 2), clients, **usual | settings)


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_is_asked_runs_or_is_refused(part: int, tmp_path: Path) -> None:
    trained = 0
    for number in range(COMBINATIONS):
        dice = random.Random(COMBINATIONS * part + number)  # noqa: S311 - no secret
        options = combination(dice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the averager, of a deadline, of error feedback
            try:
                whole = train(**options)
            except InputError:
                continue
            folder = tmp_path / str(number)
            train(**options | {"steps": dice.randint(1, STEPS - 1)}, out=folder)
            rest = train(**options, out=folder, resume=True)
        trained += 1
        assert whole.iterations >= STEPS, options
        assert whole.servers.isfinite().all(), options
        assert torch.equal(rest.servers, whole.servers), options
        assert rest.seconds == whole.seconds, options
    assert trained, "all were refused: nothing was tested"
