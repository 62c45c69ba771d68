"""A change on the wire is bit for bit what the algorithm's codec makes of it, and as long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from packings import PACKINGS

from sdfeel.algorithm.methods.codecs import CODECS, Draw, TopK
from sdfeel.algorithm.randomness import MESSAGE, seeds
from sdfeel.deploy.model.vectors import BLOCK
from sdfeel.deploy.wire.packing import Dense, Packed, pack

SIZES = [1, 2, 3, 255, 256, 257, 511, 512, 513, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 257]


def draw(k: int = 18, sender: int = 3) -> Draw:
    return Draw(5, np.array([sender]), k)


def values(size: int, seed: int, kind: str) -> np.ndarray:
    chance = np.random.default_rng(seed)
    found = chance.normal(size=size).astype("<f4")
    if kind == "zeros":
        return np.zeros(size, dtype="<f4")
    if kind == "mixed":  # blocks of zeros among others, sizes over many orders of magnitude
        found *= np.exp2(chance.integers(-40, 10, size=size)).astype("<f4")
        found[chance.random(size) < 0.4] = 0
        found[: size // 2 // 256 * 256] = 0
    if kind == "denormal":
        found *= np.float32(1e-41)
    if kind == "ties":  # halfway between two steps of int4 and of bfloat16
        found = np.resize(np.float32([7.0, 0.5, 1.5, -2.5, -0.5, 1.00390625, 1.01171875]), size)
    return found


@given(
    st.sampled_from(sorted(PACKINGS)),
    st.sampled_from(SIZES),
    st.integers(0, 99),
    st.sampled_from(["normal", "zeros", "mixed", "denormal", "ties"]),
)
def test_as_the_codec_and_as_long_as_it_says(name: str, size: int, seed: int, kind: str) -> None:
    sent, codec, packing = values(size, seed, kind), CODECS[name](), PACKINGS[name]
    wanted = codec.decode(codec.encode(sent[None], draw()), sent[None])[0]
    packed = Packed(packing, size, b"")
    parts = list(pack(packing, lambda start, stop: sent[start:stop], packed, draw()))
    arrived = np.concatenate([part for _, part in parts])
    assert arrived.tobytes() == wanted.tobytes()
    assert np.concatenate([owed for owed, _ in parts]).tobytes() == sent.tobytes()
    assert packing.remembers == codec.feeds_back
    if codec.feeds_back:  # what is owed the next time is exact
        np.testing.assert_array_equal(arrived + (sent - arrived), sent)
    length, exact = sum(len(packed.read_bytes(*span)) for span in packed.spans()), codec.bits(size)
    if isinstance(packing, Dense) or size <= BLOCK:
        assert length == -(-exact // 8)
    else:  # a place in a chunk is shorter than one in the model
        assert length <= -(-exact // 8) + len(parts)


@pytest.mark.parametrize("size", [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3 * BLOCK + 257])
@pytest.mark.parametrize("levels", [1, 2, 3, 200])
def test_of_equally_large_values_top_k_sends_those_with_the_lowest_places(
    size: int, levels: int
) -> None:
    """Positive, negative and zero, in one chunk and over several; the largest come last."""
    chance = np.random.default_rng(levels)
    sent = np.sort(chance.integers(0, levels, size=size)).astype("<f4")
    sent[: size // 2] = chance.permutation(sent[: size // 2])
    sent[chance.random(size) < 0.5] *= -1
    count = TopK().count(size)
    wanted = np.zeros_like(sent)
    places = np.argsort(-np.abs(sent), kind="stable")[:count]
    wanted[places] = sent[places]
    packed = Packed(PACKINGS["top-k"], size, b"")
    parts = pack(PACKINGS["top-k"], lambda start, stop: sent[start:stop], packed, draw())
    assert np.concatenate([part for _, part in parts]).tobytes() == wanted.tobytes()
    assert CODECS["top-k"]().through("up", sent[None], draw())[0].tobytes() == wanted.tobytes()


@given(st.integers(0, 2**63), st.integers(0, 2**31), st.integers(1, 2**40), st.integers(0, 2))
@example(seed=0, sender=0, k=1, stream=0)
def test_numbers_are_those_of_pytorch_however_they_are_asked_for(
    seed: int, sender: int, k: int, stream: int
) -> None:
    """A node draws chunk by chunk, a simulation for a whole model and many senders at a time."""
    own = np.array([sender])
    number = int(seeds(seed, own, np.array([k]), MESSAGE + stream)[0, 0])
    words = torch.empty(13, dtype=torch.int64)
    words.random_(-(2**63), None, generator=torch.Generator().manual_seed(number))
    wanted = (words.view(torch.int16)[:50].float().add(32768.5) * 2.0**-16).numpy()
    assert Draw(seed, own, k, stream).uniforms(50)[0].tobytes() == wanted.tobytes()
    both = Draw(seed, np.array([sender + 1, sender]), np.array([k, k]), stream)
    assert both.uniforms(50)[1].tobytes() == wanted.tobytes()
    chunks = Draw(seed, own, k, stream)
    found = np.concatenate([chunks.uniforms(count)[0] for count in (8, 40, 2)])
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", PACKINGS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3.4e38])
def test_what_cannot_be_sent_arrives_as_not_finite(name: str, bad: float) -> None:
    """Or as it is: the receiver's checks see it, and say so."""
    sent = np.zeros(300, dtype="<f4")
    sent[299] = bad
    packed = Packed(PACKINGS[name], 300, b"")
    ((_, arrived),) = pack(PACKINGS[name], lambda start, stop: sent[start:stop], packed, draw())
    assert len(packed.read_bytes(0, 300)) == -(-CODECS[name]().bits(300) // 8)
    assert not (np.abs(arrived) < 1e38).all()


@pytest.mark.parametrize("name", PACKINGS)
def test_a_large_change_lies_in_a_file_and_is_the_same(tmp_path: Path, name: str) -> None:
    sent = values(2 * BLOCK + 257, 1, "normal")
    loads = [Packed(PACKINGS[name], sent.size, b"x", tmp_path, in_memory=m) for m in (False, True)]
    for load in loads:
        list(pack(PACKINGS[name], lambda start, stop: sent[start:stop], load, draw()))
    file, memory = loads
    assert file.sha256 == memory.sha256
    for span in file.spans():
        assert file.read_bytes(*span) == memory.read_bytes(*span)
