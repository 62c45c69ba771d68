"""Changes that no honest client sends: what is made of them is a good model, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import numpy as np
import pytest
from hostile import dial, hello
from hypothesis import given
from hypothesis import strategies as st
from packings import PACKINGS
from test_hostile_client import PERIODS, events, play
from twin import Door
from twin_world import SIZE, Still, TwinWorld, make_edges_cheap
from virtual import NODE

from sdfeel.algorithm.methods.codecs import Draw, pack_places
from sdfeel.deploy.client.client import ClientProgram
from sdfeel.deploy.model.vectors import BLOCK, Vector, as_vector
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames
from sdfeel.deploy.wire.packing import Dense, Packed, pack

MOST = 1e9
SCALED = ("int8", "int4")
LARGE = BLOCK + 300
FEW = (2, 1, 1)
DENSE = [name for name, packing in PACKINGS.items() if isinstance(packing, Dense)]


def a_vector(size: int = LARGE) -> Vector:
    return as_vector(np.random.default_rng(size).normal(size=size))


def change(name: str, start: Vector, by: float = 0.1) -> Packed:
    packed = Packed(PACKINGS[name], start.size, start.sha256)
    chance = np.random.default_rng(1).normal(size=start.size, scale=by).astype("<f4")
    list(pack(PACKINGS[name], lambda a, b: chance[a:b], packed, Draw(0, np.array([0]), 1)))
    return packed


def incoming(name: str, start: Vector, announced: v1.ModelHeader) -> frames.Incoming:
    return frames.Incoming(announced, start.size, MOST, None, start, PACKINGS[name])


def forged(name: str, start: Vector, data: bytes) -> frames.Incoming:
    """Of a small model, all of it in its header, with a hash that is right."""
    about = frames.header(change(name, start), 1)
    about.data, about.sha256 = data, hashlib.sha256(data).digest()
    return incoming(name, start, about)


@pytest.mark.parametrize("name", PACKINGS)
@pytest.mark.parametrize("size", [1, 255, 257, BLOCK, LARGE, 2 * BLOCK + 1])
def test_an_honest_change_arrives_with_its_distance(name: str, size: int) -> None:
    start = a_vector(size)
    packed = change(name, start)
    found = incoming(name, start, frames.header(packed, 1))
    arrived = [found.begin(), *(found.feed(chunk) for chunk in frames.chunks(packed))]
    assert arrived[:-1].count(None) == len(arrived) - 1 or size <= BLOCK
    (vector,) = (one for one in arrived if one is not None)
    moved = np.linalg.norm(vector.array().astype(float) - start.array())
    assert found.moved == pytest.approx(moved, rel=1e-9)
    assert moved > 0
    with pytest.raises(Refused, match="for 0 values"):
        found.feed(v1.Chunk(offset=size))


@pytest.mark.parametrize("name", PACKINGS)
def test_what_is_announced_must_be_what_the_file_says(name: str) -> None:
    start = a_vector(300)
    whole = frames.header(start, 1)
    with pytest.raises(Refused, match=f"dtype 'float32', expected '{name}'"):
        incoming(name, start, whole)
    for other in PACKINGS:
        if other != name:
            with pytest.raises(Refused, match="dtype"):
                incoming(other, start, frames.header(change(name, start), 1))
    with pytest.raises(Refused, match=f"dtype '{name}', expected 'float32'"):
        frames.Incoming(frames.header(change(name, start), 1), 300, MOST, None, start)
    with pytest.raises(Refused, match="expected 300"):
        incoming(name, start, frames.header(change(name, a_vector(299)), 1))
    for base in (b"", b"x" * 32, start.sha256[:31], a_vector(301).sha256):
        about = frames.header(change(name, start), 1)
        about.base = base
        with pytest.raises(Refused, match="another model") as refusal:
            incoming(name, start, about)
        assert refusal.value.kind == "base"
    whole.base = start.sha256
    with pytest.raises(Refused, match="another model"):
        frames.Incoming(whole, 300, MOST, None, start)


@pytest.mark.parametrize("name", DENSE)
def test_chunks_of_a_wrong_length_or_order_are_refused(name: str) -> None:
    start = a_vector()
    packed = change(name, start)
    about = frames.header(packed, 1)
    first, last = (packed.read_bytes(*span) for span in packed.spans())
    wrong = [b"", first[:-1], first + b"\0", first[: len(first) // 2], last, bytes(4 * BLOCK)]
    for data in wrong:
        with pytest.raises(Refused, match="a chunk of") as refusal:
            incoming(name, start, about).feed(v1.Chunk(data=data))
        assert refusal.value.kind == "size"
    found = incoming(name, start, about)
    assert found.feed(v1.Chunk(data=first)) is None
    for offset, data, kind in ((0, first, "order"), (1, last, "order"), (BLOCK, last[1:], "size")):
        with pytest.raises(Refused) as refusal:
            found.feed(v1.Chunk(offset=offset, data=data))
        assert refusal.value.kind == kind
    twisted = bytes([last[-1] ^ 1])
    with pytest.raises(Refused, match="sha256") as refusal:
        found.feed(v1.Chunk(offset=BLOCK, data=last[:-1] + twisted))


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize(
    ("scale", "kind"),
    [
        (np.nan, "not-finite"),
        (np.inf, "not-finite"),
        (-np.inf, "not-finite"),
        (3e38, "not-finite"),
        (1e30, "magnitude"),
        (-1e30, "magnitude"),
        (1e9, "magnitude"),
        (-1.0, ""),
        (1e-45, ""),
        (0.0, ""),
        (-0.0, ""),
    ],
)
def test_whatever_a_scale_is_the_model_that_comes_of_it_counts(
    name: str, scale: float, kind: str
) -> None:
    """The last block's, which is not full; the other block is honest."""
    start = a_vector(300)
    data = bytearray(change(name, start).read_bytes(0, 300))
    data[4:8] = np.float32(scale).tobytes()
    found = forged(name, start, bytes(data))
    if kind:
        with pytest.raises(Refused) as refusal:
            found.begin()
        assert refusal.value.kind == kind
        return
    vector = found.begin()
    assert vector is not None
    tail = vector.array()[256:] - start.array()[256:]
    assert np.isfinite(tail).all()
    if abs(scale) < 1e-30:
        assert not tail.any()


@pytest.mark.parametrize("name", PACKINGS)
def test_a_change_of_nothing_is_the_start(name: str) -> None:
    start = a_vector(300)
    arrived = incoming(name, start, frames.header(change(name, start, by=0.0), 1)).begin()
    assert arrived is not None
    assert arrived.sha256 == start.sha256


@pytest.mark.parametrize("name", PACKINGS)
def test_the_result_is_bounded_and_not_the_change_alone(name: str) -> None:
    """A little at a time beyond the limit is beyond it as well."""
    start = as_vector(np.full(300, MOST))
    packed = Packed(PACKINGS[name], 300, start.sha256)
    by = np.full(300, 6e4, dtype="<f4")
    list(pack(PACKINGS[name], lambda a, b: by[a:b], packed, Draw(0, np.array([0]), 1)))
    found = incoming(name, start, frames.header(packed, 1))
    with pytest.raises(Refused) as refusal:
        found.begin()
    assert refusal.value.kind == "magnitude"


@given(st.sampled_from(sorted(PACKINGS)), st.integers(1, 600), st.randoms(use_true_random=False))
def test_random_bytes_give_a_good_model_or_nothing(name: str, size: int, chance: Any) -> None:
    start = a_vector(size)
    length = -(-PACKINGS[name].codec.bits(size) // 8)
    data = bytes(chance.getrandbits(8) for _ in range(length))
    found = forged(name, start, data)
    try:
        with np.errstate(all="ignore"):
            made = start.array() + PACKINGS[name].reader(size).read(data, size)
    except Refused:
        assert name == "top-k"
        made = np.full(size, np.nan)
    if np.abs(made).max() <= MOST:
        vector = found.begin()
        assert vector is not None
        assert vector.array().tobytes() == made.tobytes()
    else:
        with pytest.raises(Refused, match=r"NaN or infinity|a value of|places that"):
            found.begin()


def sparse(places: list[int], count: int, value: float = 1.0) -> bytes:
    """A chunk of top-k with these places among `count` values."""
    packed = pack_places(np.array([places], dtype=np.int64), count)
    return np.full(len(places), value, "<f4").tobytes() + packed.tobytes()


@pytest.mark.parametrize(
    ("places", "kind"),
    [
        ([0, 1, 299], ""),
        ([1, 0, 299], "places"),
        ([1, 1, 299], "places"),
        ([0, 1, 300], "places"),
        ([0, 1, 511], "places"),
        ([0, 1], "size"),
        ([], ""),  # is no chunk at all: the header has nothing
        ([0, 1, 2, 3], "size"),
        (list(range(300)), "size"),
    ],
)
def test_places_are_in_range_in_order_and_as_many_as_k(places: list[int], kind: str) -> None:
    start = a_vector(300)
    found = forged("top-k", start, sparse(places, 300))
    if kind:
        with pytest.raises(Refused) as refusal:
            found.begin()
        assert refusal.value.kind == kind
        return
    vector = found.begin()
    if not places:
        assert vector is None
        with pytest.raises(Refused, match="3 of the k values"):
            found.feed(v1.Chunk())
        return
    assert vector is not None
    assert np.flatnonzero(vector.array() != start.array()).tolist() == places


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ((300, 30), ""),
        ((30, 300), ""),
        ((330, 0), ""),
        ((331, 0), "more values than k"),
        ((BLOCK, 0), "more values than k"),
        ((300, 31), "more values than k"),
        ((300, 29), "1 of the k values"),
        ((0, 0), "330 of the k values"),
    ],
)
def test_k_is_that_of_the_whole_model(counts: tuple[int, ...], fault: str) -> None:
    """However the places are spread over chunks, some of which may be empty."""
    start, spans = a_vector(LARGE), list(as_vector(np.zeros(LARGE)).spans())
    sizes = [stop - first for first, stop in spans]
    data = [sparse(list(range(count)), size) for count, size in zip(counts, sizes, strict=True)]
    about = frames.header(change("top-k", start), 1)
    about.sha256 = hashlib.sha256(b"".join(data)).digest()
    found = incoming("top-k", start, about)

    def arrives() -> Vector | None:
        arrived = None
        for (first, _), chunk in zip(spans, data, strict=True):
            arrived = found.feed(v1.Chunk(offset=first, data=chunk))
        return arrived

    if fault:
        with pytest.raises(Refused, match=fault):
            arrives()
    else:
        assert arrives() is not None


@pytest.mark.parametrize("spoil", [lambda d: d[:-1], lambda d: d + b"\0", lambda d: d * 2])
def test_a_sparse_chunk_of_no_whole_number_of_places_is_refused(spoil: Any) -> None:
    data = spoil(sparse([0, 1, 2], 300))
    with pytest.raises(Refused) as refusal:
        forged("top-k", a_vector(300), data).begin()
    assert refusal.value.kind == "size"


# Whole deployments, on the network in memory.


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    make_edges_cheap(monkeypatch)


async def send(world: TwinWorld, stream: Any, period: int, load: Any, **fields: Any) -> None:
    about = frames.header(load, period, samples=world.deployment.client("c0").samples)
    for field, value in fields.items():
        setattr(about, field, value)
    await stream.write(v1.FromClient(model=about))


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("by", "kind"), [(np.nan, "not-finite"), (1e30, "magnitude"), (1e4, "norm"), (None, "dtype")]
)
def test_a_bad_change_in_every_period_moves_nobody(by: float | None, kind: str) -> None:
    """None: the whole model as it is, in a deployment whose clients send int8."""

    async def act(world: TwinWorld) -> None:
        stream = await dial(world)
        await hello(world, stream)
        while (message := await stream.read()) is not None:
            if message.WhichOneof("body") != "task":
                continue
            task = message.task
            given = as_vector(np.frombuffer(task.model.data, "<f4"))
            load: Any = given
            if by is not None:
                load = Packed(PACKINGS["int8"], SIZE, given.sha256)
                load.write(np.float32(by / 127).tobytes() + bytes([127] * SIZE))
            await send(world, stream, task.period, load)

    world = play(act, sizes=FEW, codecs={"up": "int8"})
    assert {line["kind"] for line in events(world, "refused")} == {kind}
    for disk in world.disks.values():
        assert np.abs(disk.found.model.array()).max() < 10


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize(
    ("up", "made", "kind"),
    [
        ("int8", np.full(SIZE, np.nan), "not-finite"),
        ("int4", np.full(SIZE, np.inf), "not-finite"),
        ("float16", np.full(SIZE, 1e5), "not-finite"),
        ("int8", np.zeros(SIZE + 1), "shape"),
    ],
)
def test_a_client_that_has_diverged_is_refused_and_stays(
    up: str, made: np.ndarray, kind: str
) -> None:
    """As it is without a codec: nobody waits for it, and it goes on."""

    class Diverged(Still):
        def train(self, model: np.ndarray, first: int, steps: int) -> np.ndarray:
            return model if first > 20 else made

    async def act(world: TwinWorld) -> None:
        token = NODE.set("c0")
        door: Any = Door(world.net, "client", "c0")
        trainer = Diverged(world.deployment.client("c0").samples)
        client = ClientProgram(world.deployment, "c0", trainer, None, door)
        world.tasks["c0"] = asyncio.ensure_future(client.run())
        NODE.reset(token)

    world = play(act, sizes=FEW, codecs={"up": up})
    assert {line["kind"] for line in events(world, "refused")} == {kind}
    assert not [line for line in events(world, "deadline") if line["node"] == "e00"]
    last = [line["participants"] for line in events(world, "period") if line["node"] == "e00"][-1]
    assert "c0" in last


@pytest.mark.usefixtures("cheap")
def test_who_is_new_on_a_stream_gets_the_whole_model_and_then_changes() -> None:
    """Also after an edge was killed: what its clients held was in its memory."""
    seen: list[list[str]] = []
    models: list[np.ndarray] = []

    async def attend(world: TwinWorld, tasks: int) -> None:
        stream = await dial(world)
        await hello(world, stream)
        seen.append([])
        held = as_vector(np.zeros(SIZE))
        while len(seen[-1]) < tasks:
            message = await stream.read()
            if message is None:
                return
            if message.WhichOneof("body") != "task":
                continue
            about = message.task.model
            packing = PACKINGS.get(about.dtype)
            found = frames.Incoming(about, SIZE, MOST, None, held if packing else None, packing)
            held = found.begin() or held
            models.append(held.array())
            seen[-1].append(about.dtype)
            await send(world, stream, message.task.period, held)
        stream.close()

    async def act(world: TwinWorld) -> None:
        await attend(world, 4)
        await attend(world, 3)
        world.kill("e00")
        await world.start("e00")
        await attend(world, 3)
        await world.start("c0")

    world = play(act, seconds=90.0, sizes=FEW, codecs={"down": "int8"})
    whole = ["float32", "int8", "int8", "int8"]
    assert seen == [whole, whole[:3], whole[:3]]
    assert max(line["period"] for line in events(world, "period")) == PERIODS
    assert np.ptp([model[0] for model in models]) < 10
