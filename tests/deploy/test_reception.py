"""What a client sends passes every check, in the order of one list, before it counts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sdfeel.algorithm.methods.codecs import Float32
from sdfeel.deploy.cluster import reception
from sdfeel.deploy.cluster.reception import ON_HEADER, WHEN_WHOLE, Reception
from sdfeel.deploy.cluster.session import Given
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.model.vectors import BLOCK, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.wire import frames

SIZE = 2 * BLOCK  # two chunks
GIVEN, SENT = as_vector(np.zeros(SIZE)), as_vector(np.ones(SIZE))


class Cluster:
    """Notes what comes of a model. In its third period, without rounds, of one client at home."""

    def __init__(self, **changed: Any) -> None:
        limits, codecs = SimpleNamespace(magnitude=10.0), SimpleNamespace(up=Float32())
        deployment = SimpleNamespace(most_steps=5, limits=limits, codecs=codecs)
        self.node = SimpleNamespace(
            deployment=deployment, size=SIZE, folder=Path(), metrics=Metrics()
        )
        members = SimpleNamespace(samples=lambda _: 10)
        self.topology = SimpleNamespace(at=lambda _: members, tau1=1)
        self.period, self.is_open = 3, True
        self.uploads: dict[str, Any] = {}
        self.elsewhere: dict[str, int] = {}
        self.home = {"c"}
        self.outcome = ""
        self.__dict__.update(changed)

    def is_wanted(self, period: int) -> bool:
        return self.is_open and period == self.period

    def accept(self, _arrival: Any, _upload: Any, _seconds: float) -> None:
        self.outcome = "accepted"

    def refuse(self, _name: str, refusal: Any) -> None:
        self.outcome = refusal.kind

    def count(self, _name: str, refusal: Any) -> None:
        self.outcome = refusal.kind

    def late(self, _session: Any, period: int) -> None:
        self.outcome = f"late {period}"


def arrive(cluster: Cluster, given: int = 3, chunks: int = 2, **header: Any) -> str:
    """What comes of a model that is in order but for `header`."""
    session: Any = SimpleNamespace(name="c", given=Given(given, GIVEN, 0.0))

    async def now() -> str:
        fields = {"samples": 10, "steps": 2, **header}
        announced = frames.header(SENT, fields.pop("period", 3), **fields)
        stream = Reception(cluster, session)  # type: ignore[arg-type]
        await stream.take(v1.FromClient(model=announced))
        for chunk in [*frames.chunks(SENT)][:chunks]:
            await stream.take(v1.FromClient(chunk=chunk))
        stream.end()
        return cluster.outcome

    return asyncio.run(now())


# By check, a cluster and a header of which it alone does not approve.
WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "is_first": ({"uploads": {"c": 1}}, {}, "replayed"),
    "is_of_this_period": ({}, {"period": 4, "given": 4}, "period"),
    "has_its_samples": ({}, {"samples": 11}, "samples"),
    "has_possible_steps": ({}, {"steps": 6}, "steps"),
    "is_not_elsewhere": ({"elsewhere": {"c": 3}, "home": set()}, {}, "elsewhere"),
}


def test_a_model_that_is_in_order_counts() -> None:
    assert arrive(Cluster()) == "accepted"


@pytest.mark.parametrize("name", [check.__name__ for check in {*ON_HEADER, *WHEN_WHOLE}])
def test_every_check_is_needed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, header, outcome = WRONG[name]
    assert arrive(Cluster(**cluster), **header) == outcome
    for stage in ("ON_HEADER", "WHEN_WHOLE"):
        others = [check for check in getattr(reception, stage) if check.__name__ != name]
        monkeypatch.setattr(reception, stage, others)
    assert arrive(Cluster(**cluster), **header) == "accepted", "no other check has seen it"


def test_the_first_thing_that_is_wrong_is_told() -> None:
    everything = {"period": 4, "samples": 11, "steps": 6}
    cluster = {"elsewhere": {"c": 9}, "home": set()}
    assert arrive(Cluster(**cluster), **everything) == "period"
    assert arrive(Cluster(**cluster), samples=11, steps=6) == "samples"
    assert arrive(Cluster(**cluster), steps=6) == "steps"


@pytest.mark.parametrize(
    ("cluster", "header"),
    [({}, {"period": 2, "given": 3}), ({}, {"period": 3, "given": 2}), ({"is_open": False}, {})],
    ids=["an earlier period", "work that it was not given", "closed"],
)
def test_what_comes_late_is_no_fault(cluster: dict[str, Any], header: dict[str, Any]) -> None:
    assert arrive(Cluster(**cluster), **header) == f"late {header.get('period', 3)}"


def test_a_period_that_ends_while_a_model_comes_in() -> None:
    class Closing(Cluster):
        def is_wanted(self, period: int) -> bool:
            wanted, self.is_open = super().is_wanted(period), False
            return wanted

    assert arrive(Closing()) == "late 3"


def test_a_stream_that_ends_within_a_model() -> None:
    assert arrive(Cluster(), chunks=1) == "truncated"
