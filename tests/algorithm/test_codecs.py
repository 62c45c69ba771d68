"""Codecs: lengths, errors, what is owed, what exchanges keep, and what the clock charges."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from algorithms import algorithm_of
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Problem, networks, vector

import sdfeel
from sdfeel import CODECS, InputError, Schedule, load_profile
from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.codecs import Draw, TopK, largest
from sdfeel.clock import EventClock

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

names = pytest.mark.parametrize("name", sorted(CODECS))
FEEDING_BACK = [name for name, kind in CODECS.items() if kind.feeds_back]
# Around the length of a block and of a byte of two values.
lengths = st.sampled_from([1, 2, 3, 255, 256, 257, 511, 512, 513])
numbers = st.floats(-6e4, 6e4, width=32)


def rows(data: st.DataObject, dtype: type = np.float32) -> np.ndarray:
    """Two senders, some values drawn and the others spread over many sizes."""
    n = data.draw(lengths, "values")
    rng = np.random.default_rng(data.draw(st.integers(0, 99), "seed"))
    values = rng.normal(size=(2, n)) * 10.0 ** rng.integers(-6, 3, size=(2, n))
    few = data.draw(st.lists(numbers, max_size=min(n, 5)), "drawn")
    values[0, : len(few)] = few
    return values.astype(dtype)


def through(codec: sdfeel.Codec, values: np.ndarray, k: int = 1) -> np.ndarray:
    return codec.through("up", values, Draw(0, np.arange(len(values)), k))


def peaks(values: np.ndarray) -> np.ndarray:
    """The largest absolute value of each one's block."""
    n = values.shape[1]
    blocks = np.pad(np.abs(values), ((0, 0), (0, -n % 256))).reshape(len(values), -1, 256)
    return np.repeat(blocks.max(axis=2), 256, axis=1)[:, :n]


@names
@given(data=st.data())
def test_what_arrives_is_near_what_was_sent_and_as_long_as_it_says(name: str, data) -> None:
    sent = rows(data, data.draw(st.sampled_from([np.float32, np.float64])))
    own, n = CODECS[name](), sent.shape[1]
    message = own.encode(sent, Draw(0, np.array([0, 1]), 1))
    back = own.decode(message, like=sent)
    assert (back.dtype, back.shape) == (sent.dtype, sent.shape)
    bits = 8 * sum(part[0].nbytes for part in message.values())
    if not own.exact or sent.dtype == np.float32:
        assert 0 <= bits - own.bits(n) < 8  # to whole bytes
    off = np.abs(back - sent)
    steps = peaks(sent) * (1 + 1e-5) + 1e-37
    size = np.abs(sent)
    bound = {
        "float32": 0 * off,
        "float16": size / 2048 + 6e-8,
        "bfloat16": size / 256 + 1e-37,
        "int8": steps / 127,
        "int4": steps / 7 / 2 + steps * 1e-6,
        "top-k": np.where(back == 0, size, size * 2**-24 + 1e-37),
    }[name]
    assert (off <= bound).all()


@names
@given(data=st.data())
def test_a_message_comes_through_its_bytes(name: str, data) -> None:
    """As it lies on the wire of a deployment."""
    sent = rows(data)[:1]
    own, n = CODECS[name](), sent.shape[1]
    message = own.encode(sent, Draw(0, np.array([0]), 1))
    there = own.pack(message)
    assert len(there) == -(-own.bits(n) // 8)
    back = own.decode(own.unpack(there, n), like=sent)
    np.testing.assert_array_equal(back, own.decode(message, like=sent))


def test_the_lengths_are_those_of_the_table() -> None:
    n = 21840  # the paper's CNN
    expected = {
        "float32": 32 * n,
        "float16": 16 * n,
        "bfloat16": 16 * n,
        "int8": 8 * n + 32 * 86,
        "int4": 4 * n + 32 * 86,
        "top-k": 218 * (32 + 15),
    }
    assert {name: kind().bits(n) for name, kind in CODECS.items()} == expected
    assert expected["int8"] / expected["float32"] < 0.27


@settings(max_examples=10)
@given(data=st.data())
def test_int8_is_unbiased(data) -> None:
    """The mean of 4,000 messages is within six of its own standard errors, everywhere."""
    value = rows(data)[:1]
    senders = 4000
    sent = np.repeat(value, senders, axis=0).astype(float)
    mean = through(CODECS["int8"](), sent).mean(axis=0)
    step = peaks(value)[0] / 127.0
    assert (np.abs(mean - value[0]) <= 3 * step / senders**0.5 + 1e-6 * step + 1e-37).all()


def test_random_rounding_is_a_function_of_seed_sender_and_k() -> None:
    values = np.repeat(np.random.default_rng(1).normal(size=(1, 300)), 3, axis=0)

    def sent(senders: list[int], k: int = 7, seed: int = 2, stream: int = 0) -> np.ndarray:
        draw = Draw(seed, np.array(senders), k, stream)
        return CODECS["int8"]().encode(values[: len(senders)], draw)["numbers"]

    together = sent([4, 9, 1])
    assert np.array_equal(sent([9])[0], together[1])
    others = [sent([4], k=8), sent([4], seed=3), sent([4], stream=1), sent([9])]
    assert not any(np.array_equal(other[0], together[0]) for other in others)


@pytest.mark.parametrize("name", FEEDING_BACK)
@given(data=st.data())
def test_sent_and_kept_are_what_was_owed_to_the_last_bit(name: str, data) -> None:
    """In float32, over any sequence of changes."""
    own = CODECS[name]()
    first = rows(data)
    residual = np.zeros_like(first)
    for k in range(4):
        owed = np.roll(first, k, axis=1) * np.float32((-0.7) ** k) + residual
        arrived = through(own, owed, k)
        residual = owed - arrived
        np.testing.assert_array_equal(arrived + residual, owed)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "int4", "top-k"])
def test_a_change_that_is_not_finite_is_not_sent(name: str) -> None:
    for bad in (float("nan"), float("inf")):
        values = np.ones((1, 300), dtype=np.float32)
        values[0, 7] = bad
        with pytest.raises(InputError, match="codecs"):
            through(CODECS[name](), values)


@pytest.mark.parametrize("k", [14, 15, 16])
def test_a_k_beyond_the_model_is_refused_before_training(small: Problem, k: int) -> None:
    """The model has 15 values."""
    run = {"network": small.network, "steps": 2, "codecs": {"up": TopK(k)}, "engine": "reference"}
    if k > 15:
        with pytest.raises(InputError, match="at most 15"):
            sdfeel.train(small.model, small.datasets, **run)
    else:
        sdfeel.train(small.model, small.datasets, **run)


@pytest.mark.parametrize("count", [1, 79, 80, 81, 139, 140, 141, 299, 300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_of_equally_large_values_those_with_the_lowest_places_are_sent(
    count: int, dtype: type
) -> None:
    """Rows: 80 values of size 2, 60 of size 1 and 160 zeros; only zeros; no two of one size."""
    rng = np.random.default_rng(count)
    few = rng.permutation(np.repeat([2, -2, 1, -1, 0.0, -0.0], [40, 40, 30, 30, 80, 80]))
    values = np.array([few, np.zeros(300), rng.normal(size=300)], dtype=dtype)
    places = np.argsort(-np.abs(values), axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(largest(values, count), np.sort(places, axis=1))


# Exchanges


@settings(max_examples=25)
@given(networks(min_servers=2, max_servers=6), st.sampled_from(["int8", "bfloat16"]),
       st.sampled_from(["paper", "metropolis", "exact"]), st.integers(1, 3))  # fmt: skip
def test_exchanges_keep_the_weighted_mean_whatever_the_codec(
    network, name, averager, alpha
) -> None:
    """In float64 to 1e-12; and they still bring servers together."""
    from worlds import classification

    from sdfeel.simulation.settings import Settings
    from sdfeel.simulation.simulation import Simulation
    from sdfeel.simulation.state import State

    samples = [int(count) for count in network.shares.samples]
    world = classification(
        samples, network.clusters.members, network.graph, hidden=9, dtype=torch.float64
    )
    given = {"schedule": Schedule(1, 1, alpha), "averager": averager, "steps": 1}
    given["codecs"] = {"between": name}
    own = Simulation.assemble(
        world.model, world.datasets, Settings.of(given), network=world.network
    )
    state = State(own.problem, own.algorithm, own.start, own.ranks)
    state.models += torch.randn(state.models.shape, dtype=torch.float64)
    mt = torch.tensor(network.shares.cluster)
    before = mt @ state.models
    weight = mt.sqrt()[
        :, None
    ]  # in this norm the paper's exchange never enlarges, in others it may
    spread = float((weight * (state.models - before)).norm())
    for event in islice(own.algorithm.events(), 3):
        state.mix(event)
        torch.testing.assert_close(mt @ state.models, before, rtol=0, atol=1e-12)
    assert float((weight * (state.models - before)).norm()) < max(spread * 1.01, 1e-9)


@pytest.mark.parametrize(
    ("codec", "averager", "remedy"),
    [
        ("int8", "all-reduce", "sends sums of them"),
        ("top-k", "metropolis", "leaves values out"),
        ("int4", "chebyshev", "without negative weights"),
    ],
)
def test_a_codec_that_exchanges_cannot_bear_is_refused(codec, averager, remedy) -> None:
    with pytest.raises(InputError, match=remedy) as error:
        algorithm(averager=averager, codecs={"between": codec})
    assert error.value.field == "codecs.between"
    algorithm(averager="metropolis", codecs={"between": "int4"})


def test_error_feedback_with_absent_clients_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="error feedback waits"):
        algorithm(codecs={"up": "int4"}, participation=0.5)
    with pytest.raises(InputError, match="all values of a model"):
        algorithm(codecs={"up": "top-k"}, correction="two-level")


# The clock


def algorithm(profile: str = "paper", **options: object) -> Algorithm:
    own = {"averager": "all-reduce", "schedule": Schedule(2, 1, 5), **options}
    return algorithm_of(profile=profile, **own)


SCALES = 32 * 86 / 5e6  # seconds of the scales of int8 and int4 over 5 Mbit/s


@pytest.mark.parametrize(
    ("profile", "codecs", "values", "scales"),
    [
        ("paper", {}, 0.1800, 0),
        ("paper", {"up": "int8"}, 0.0752, 1),
        ("paper", {"up": "int4"}, 0.0577, 1),
        ("paper", {"up": "int8", "down": "int8"}, 0.0752, 1),
        ("paper-downlink", {}, 0.3198, 0),
        ("paper-downlink", {"up": "int8"}, 0.2150, 1),
        ("paper-downlink", {"up": "int8", "down": "int8"}, 0.1102, 2),
    ],
)
def test_the_round_of_figure_3_costs_what_its_bits_take(profile, codecs, values, scales) -> None:
    """Seconds of the values alone, and of a scale for every 256 of them."""
    own = algorithm(profile, codecs=codecs)
    cost = round_cost(own)
    assert cost.total == pytest.approx(values + scales * SCALES, abs=6e-5)
    sent, bits = cost.bytes, own.codecs["up"].bits(21840)
    assert sent["up"] == 50 * bits / 8
    assert sent["down"] == 50 * own.codecs["down"].bits(21840) / 8
    assert sent["between"] == 18 * 4 * 21840


def test_exchanges_of_shorter_messages_take_less() -> None:
    plain, short = (
        algorithm(averager="paper"),
        algorithm(averager="paper", codecs={"between": "int8"}),
    )
    part = CODECS["int8"]().bits(21840) / (32 * 21840)
    long, brief = round_cost(plain), round_cost(short)
    assert brief.seconds["exchange"] == pytest.approx(part * long.seconds["exchange"])
    assert brief.seconds["upload"] == long.seconds["upload"]
    assert long.bytes["between"] == 2 * 10 * 5 * 4 * 21840


@pytest.mark.parametrize(
    ("averager", "messages"), [("paper", 5), ("all-reduce", 18), ("exact", 1), ("chebyshev", 5)]
)
def test_every_message_has_its_latency(averager: str, messages: int) -> None:
    def total(**more: float) -> float:
        profile = replace(load_profile("paper-downlink"), **more)
        return round_cost(algorithm_of(profile=profile, averager=averager)).total

    later = total(seconds_per_message=0.01) - total()
    assert later == pytest.approx(0.01 * (messages + 2))  # and one up, one down


@pytest.mark.parametrize(("tau2", "gamma", "vectors"), [(1, 1.0, 0), (1, 0.5, 1), (2, 1.0, 1)])
def test_a_correction_is_charged_for_one_more_vector_down_at_an_exchange(tau2, gamma, vectors):
    """With one period a round and gamma = 1 the new model says it all."""
    own = {"profile": "paper-downlink", "schedule": Schedule(2, tau2, 5)}
    plain = round_cost(algorithm(**own)).seconds
    mine = round_cost(algorithm(**own, correction=sdfeel.Correction(gamma=gamma))).seconds
    assert mine["download"] - plain["download"] == pytest.approx(vectors * 0.139776)
    assert mine["upload"] == pytest.approx(plain["upload"])
    free = round_cost(algorithm(schedule=Schedule(2, tau2, 5), correction="two-level"))
    assert free.seconds["download"] == 0


def test_who_missed_a_broadcast_gets_the_whole_model() -> None:
    own = algorithm("paper-downlink", codecs={"down": "int8"})
    clock = EventClock(own.network, own.uplink)
    everyone, one = np.ones(50, bool), np.arange(50) == 7
    clock.broadcast(everyone, ~everyone)
    assert clock.at == pytest.approx(own.codecs["down"].bits(21840) / 5e6)
    clock.broadcast(everyone, one)
    server = own.network.clusters.server_of[7]
    assert clock.at[server] - clock.at.min() == pytest.approx(
        (32 * 21840 - own.codecs["down"].bits(21840)) / 5e6
    )


# Whole runs


def trained(problem: Problem, **options: object) -> sdfeel.Result:
    own = {"network": problem.network, "schedule": Schedule(3, 2, 2), "steps": 24, "lr": 0.1}
    own |= {"batch_size": 4, "evaluate_every": 7, "engine": "reference", "averager": "metropolis"}
    return sdfeel.train(problem.model, problem.datasets, **own | options)


@pytest.mark.filterwarnings("ignore:codecs.up")
@pytest.mark.parametrize("way", ["up", "down", "between"])
@names
def test_a_run_resumes_on_every_way_bit_for_bit(small: Problem, tmp_path, name, way) -> None:
    if (name, way) == ("top-k", "between"):
        pytest.skip("refused")
    own = {"codecs": {way: name}, "participation": 0.6}
    whole = trained(small, **own)
    trained(small, **own, steps=10, out=tmp_path)
    again = trained(small, **own, out=tmp_path, resume=True)
    np.testing.assert_array_equal(vector(again.model), vector(whole.model))
    plain = vector(trained(small, participation=0.6).model)
    assert np.array_equal(vector(whole.model), plain) == (name == "float32")
    assert np.abs(vector(whole.model) - plain).max() < 1.0


def test_a_codec_of_ones_own_says_what_a_deployment_needs() -> None:
    class Half(sdfeel.Codec):
        def encode(self, values, draw):
            return {"values": values.astype("<f2")}

        def decode(self, message, like):
            return message["values"].astype(like.dtype)

        def bits(self, values):
            return 16 * values

    with pytest.raises(InputError, match=r"needs layout\(values\) in a deployment"):
        Half().unpack(b"", 3)
