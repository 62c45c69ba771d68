"""What a client still owes, and what an edge's clients hold."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import content
from hypothesis import given
from hypothesis import strategies as st
from packings import PACKINGS

from sdfeel.algorithm.methods.codecs import Draw, Int4
from sdfeel.deploy.client.uplink import Uplink
from sdfeel.deploy.cluster.session import Downlink, Session
from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.model.vectors import BLOCK, Vector, VectorWriter, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.wire import frames, packing
from sdfeel.deploy.wire.packing import Packed

SIZE = 300
GIVEN = as_vector(np.zeros(SIZE))


def uplink(up: str) -> Uplink:
    return Uplink(parse_deployment(content((2, 1), codecs={"up": up}), Path()), "c2")


def arrives(load: Any) -> np.ndarray:
    found = frames.Incoming(frames.header(load, 1), SIZE, 1e9, None, GIVEN, PACKINGS[load.dtype])
    vector = found.begin()
    assert vector is not None
    return vector.array()


@given(st.lists(st.sampled_from(["accepted", "late", "unknown"]), max_size=8), st.integers(0, 99))
def test_what_does_not_arrive_is_owed_once_a_model_is_accepted(
    verdicts: list[str], seed: int
) -> None:
    """Sent and kept are what was owed, to the last bit; a late model changes nothing."""
    chance, client = np.random.default_rng(seed), uplink("int4")
    owed = np.zeros(SIZE, dtype="<f4")
    for period, verdict in enumerate(verdicts, start=1):
        moved = chance.normal(size=SIZE).astype("<f4")
        arrived = arrives(client.load(period, period, GIVEN, moved))
        due = moved + owed
        rest = due - arrived
        assert (arrived + rest).tobytes() == due.tobytes()
        client.accepted(period - 1)  # of the model before, once more: it is not owed twice
        if verdict == "accepted":
            client.accepted(period)
            client.accepted(period)
            owed = rest
    last = client.load(9, 9, GIVEN, np.zeros(SIZE))
    wanted = Packed(PACKINGS["int4"], SIZE, GIVEN.sha256)
    wanted.write(PACKINGS["int4"].pack(owed, Draw(0, np.array([2]), 9)))
    assert last.sha256 == wanted.sha256


def test_a_client_that_diverged_once_still_owes_what_it_owed() -> None:
    client, moved = uplink("int4"), np.linspace(0, 1, SIZE)
    client.load(1, 1, GIVEN, moved)
    client.accepted(1)
    good = client.load(2, 2, GIVEN, moved).sha256
    client.load(2, 2, GIVEN, np.full(SIZE, np.nan))
    assert client.load(2, 2, GIVEN, moved).sha256 == good


def test_without_error_feedback_nothing_is_kept() -> None:
    client = uplink("int8")
    first = client.load(1, 1, GIVEN, np.linspace(0, 1, SIZE)).sha256
    client.accepted(1)
    assert client.load(1, 1, GIVEN, np.linspace(0, 1, SIZE)).sha256 == first
    assert not PACKINGS["int8"].remembers
    assert PACKINGS["int4"].remembers == Int4.feeds_back


# Down.


def edge(folder: Path, down: str) -> Downlink:
    table = content((1, 1), codecs={"down": down}) | {"seed": 3}
    return Downlink(Topology(parse_deployment(table, folder)), "b", folder)


def follow(link: Downlink, models: list[np.ndarray]) -> list[Vector]:
    async def run() -> list[Vector]:
        return [await link.next(n, as_vector(m)) for n, m in enumerate(models, start=1)]

    return asyncio.run(run())


@pytest.mark.parametrize("down", ["float32", *PACKINGS])
@pytest.mark.parametrize("size", [SIZE, 9 * BLOCK])
def test_clients_come_to_where_the_edge_stays(tmp_path: Path, down: str, size: int) -> None:
    """What a change did not have is in the next one. The larger goes over files and a thread."""
    chance = np.random.default_rng(1)
    link, goal = edge(tmp_path, down), chance.normal(size=size).astype("<f4")
    periods = 101 if down == "top-k" else 4  # of which each has a hundredth of the values
    held = follow(link, [np.zeros(size), *[goal] * periods])
    assert not held[0].array().any(), "the first is given whole"
    far = [np.abs(vector.array() - goal).max() for vector in held]
    assert far[-1] < 1e-3
    if down == "float32":
        assert link.change is None
        assert far[1] == 0
    else:
        assert link.change is not None
        assert link.change.base == held[-2].sha256
        assert link.held is held[-1]


def test_a_change_that_the_codec_cannot_carry_is_the_whole_model(tmp_path: Path) -> None:
    link = edge(tmp_path, "float16")
    far = np.full(SIZE, 1e6)
    held = follow(link, [np.zeros(SIZE), far])
    assert link.change is None
    assert held[-1].sha256 == as_vector(far).sha256
    follow(link, [far + 1])
    assert link.change is not None


@pytest.mark.parametrize("kind", ["Packed", "VectorWriter"])
def test_a_full_disk_keeps_no_client_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One model and one change fit into the memory, as an edge's own results do."""
    whole = {"Packed": Packed, "VectorWriter": VectorWriter}[kind]

    class Full(whole):  # type: ignore[misc, valid-type]
        def write(self, data: bytes) -> None:
            if self._file is not None:
                raise OSError(28, "No space left on device")
            super().write(data)

    models = [np.zeros(3 * BLOCK), np.linspace(0, 1, 3 * BLOCK)]
    wanted = follow(edge(tmp_path, "int8"), models)[-1]
    monkeypatch.setattr(packing, kind, Full)
    link = edge(tmp_path, "int8")
    assert follow(link, models)[-1].sha256 == wanted.sha256
    assert link.change is not None


def test_who_has_not_got_the_last_model_yet_gets_the_whole_next_one() -> None:
    assert asyncio.run(given_to_one_who_does_not_read()) == [
        ("float32", "float32"),
        ("float32", "float32"),
        ("int8", "int8"),
    ]


async def given_to_one_who_does_not_read() -> list[tuple[str, str]]:
    """Nobody pumps here: what was given waits, and is replaced before it was begun."""

    class Mute:
        def close(self, reason: str) -> None:
            raise AssertionError(reason)

    session = Session(v1.Hello(name="c0"), Mute(), Metrics())  # type: ignore[arg-type]
    models = [as_vector(np.full(SIZE, float(n))) for n in range(3)]
    given = []
    for period, (before, model) in enumerate(pairwise(models), start=2):
        change = Packed(PACKINGS["int8"], SIZE, before.sha256)
        change.write(bytes(PACKINGS["int8"].length(SIZE)))
        task = v1.Task(period=period, model=frames.header(model, period))
        session.give(task, model, change)
        ((message, load),) = session.outbox._models
        given.append((message.task.model.dtype, load.dtype))
        if period == 3:
            session.outbox._models.clear()  # it has been sent
            task = v1.Task(period=4, first=7, steps=2, model=frames.header(model, 4))
            change = Packed(PACKINGS["int8"], SIZE, model.sha256)
            change.write(bytes(PACKINGS["int8"].length(SIZE)))
            session.give(task, model, change)
            ((message, load),) = session.outbox._models
            assert (message.task.first, message.task.steps, message.task.period) == (7, 2, 4)
            assert message.task.model.base == model.sha256
            given.append((message.task.model.dtype, load.dtype))
    return given
