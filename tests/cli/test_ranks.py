"""`--ranks N`: what goes wrong is said once, by whoever started the ranks."""

import os

import pytest

from sdfeel.cli import ranks
from sdfeel.errors import InputError


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(ranks, "say", lambda text, style="": found.append(text))
    return found


def told(monkeypatch: pytest.MonkeyPatch, mistakes: list[tuple[int, Exception]]) -> bytes:
    """What ranks hand over that end with these mistakes."""
    read, write = os.pipe()
    monkeypatch.setenv(ranks.ERRORS, str(write))
    for rank, problem in mistakes:
        monkeypatch.setenv("RANK", str(rank))
        ranks.explain(problem)
    os.close(write)
    return ranks._read(read)


def test_the_same_words_of_many_ranks_are_said_once(monkeypatch, said):
    same = InputError("ranks", 12, "at most 10")
    ranks._explain_once(told(monkeypatch, [(rank, same) for rank in range(12)]))
    assert said == [f"error: {same}"]


def test_words_of_one_rank_name_it(monkeypatch, said):
    mistakes = [(0, InputError("data", "a", "b")), (2, InputError("data", "c", "d\ne"))]
    ranks._explain_once(told(monkeypatch, mistakes))
    assert said == [f"error: rank {rank}: {problem}" for rank, problem in mistakes]


@pytest.mark.parametrize("length", [ranks.LONGEST - 1, ranks.LONGEST, ranks.LONGEST + 1, 10**6])
def test_long_words_do_not_block_the_pipe_and_are_cut(monkeypatch, said, length):
    ranks._explain_once(told(monkeypatch, [(1, ValueError("é" * length)), (2, ValueError("x"))]))
    assert len(said) == 2
    assert len(said[0]) < ranks.LONGEST + 50


def test_nobody_waits_for_ranks_that_say_nothing(said):
    read, write = os.pipe()
    ranks._explain_once(ranks._read(read))  # the other end is still open
    os.close(write)
    assert said == []


def test_without_a_watcher_a_rank_speaks_for_itself(monkeypatch, said):
    monkeypatch.delenv(ranks.ERRORS, raising=False)
    monkeypatch.setenv("RANK", "3")
    ranks.explain(ValueError("why"))
    assert said == ["error: rank 3: why"]
