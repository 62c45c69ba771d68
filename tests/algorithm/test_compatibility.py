"""What cannot go together is computed from what parts need and break, and said in one sentence."""

from __future__ import annotations

import pytest
from algorithms import algorithm_of

import sdfeel
from sdfeel import InputError, Method
from sdfeel.algorithm.compatibility import WORDS


def method(needs: str = "", breaks: str = "") -> Method:
    """A method that says these words, and does nothing."""
    words = {"needs": frozenset({needs} - {""}), "breaks": frozenset({breaks} - {""})}
    return type("Saying", (Method,), words)()


# For each word a setting that breaks it.
BROKEN_BY = {
    "rounds": {"pace": "asynchronous"},
    "everyone": {"participation": 0.5},
    "servers": {"scheme": "d-psgd"},
    "clusters": {"scheme": "fedbuff"},
    "exchanges": {"scheme": "local"},
    "several servers": {"scheme": "fedavg"},
    "mean": {"averaging_rule": "median"},
    "affine": {"optimizer": "adam"},
    "fresh": {"optimizer": sdfeel.Momentum(0.9, memory="keep")},
    "dense": {"codecs": {"up": "top-k"}},
    "models": {"averager": "all-reduce"},
    "averages": {"averager": "chebyshev"},
    "one mixing": {"schedule": sdfeel.Schedule(2, 1, lambda number: 1 + number % 2)},
    "one schedule": {"schedule": sdfeel.Schedule(lambda number: 1 + number % 2, 1, 1)},
}


@pytest.mark.parametrize("word", [word for word in WORDS if word != "same neighbours"])
def test_what_a_method_needs_nothing_may_break(word: str) -> None:
    """Each word alone: fine with the usual parts, and refused with the one that breaks it."""
    algorithm_of(methods=[method(needs=word)])
    with pytest.raises(InputError) as error:
        algorithm_of(methods=[method(needs=word)], **BROKEN_BY[word])
    assert error.value.field == "methods[0]"
    assert WORDS[word] in error.value.remedy
    assert "not so with" in error.value.remedy


def test_neighbours_that_change_are_a_graph_that_changes() -> None:
    from sdfeel.network import ChangingNetwork

    network = ChangingNetwork.of(sdfeel.Network.ring(4, 2), ["ring", "star"])
    with pytest.raises(InputError, match=r"neighbours that stay.*a graph that changes"):
        algorithm_of(network, methods=[method(needs="same neighbours")])


def test_two_methods_of_the_users() -> None:
    class Other(Method):
        breaks = frozenset({"mean"})

    with pytest.raises(InputError, match=r"needs servers that take the mean.*other"):
        algorithm_of(methods=[method(needs="mean"), Other()])


@pytest.mark.parametrize("which", ["needs", "breaks"])
def test_a_word_that_is_none_is_named(which: str) -> None:
    """Or a misspelt need would be met by everything."""
    with pytest.raises(InputError, match="'round': did you mean 'rounds'"):
        algorithm_of(methods=[method(**{which: "round"})])


def test_two_methods_of_one_name_are_refused() -> None:
    """Their rows would be one another's."""
    with pytest.raises(InputError, match="two methods have this name"):
        algorithm_of(methods=[method(), method()])
