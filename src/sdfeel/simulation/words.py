"""What others call a setting: where a word is unknown here, the error leads to ours."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def _all(words: str, key: str, remedy: str) -> dict[str, tuple[str, str]]:
    return {word: (key.format(word), remedy) for word in words.split()}


# Their word -> our key in a file, and what is said of it in Python. `tau1=3` is the commonest.
WORDS = {
    **_all("learning_rate eta step_size", "lr", "is called lr here"),
    **_all("scheduler lr_scheduler", "rate.name", "is a kind of lr: lr=sdfeel.Cosine(...)"),
    **_all(
        "local local_rule optim", "optimizer.name", "is called optimizer: optimizer=sdfeel.Adam()"
    ),
    **_all(
        "server server_rule",
        "server_optimizer.name",
        "is called server_optimizer: sdfeel.FedAdam()",
    ),
    **_all(
        "momentum nesterov", "optimizer.{}", "is an optimizer's: optimizer=sdfeel.Momentum(0.9)"
    ),
    **_all("weight_decay", "optimizer.{}", "is the optimizer's: sdfeel.SGD(...)"),
    **_all("prox", "optimizer.{}", "is the optimizer's: optimizer=sdfeel.SGD(prox=0.01)"),
    **_all("clip", "optimizer.{}", "is the optimizer's: optimizer=sdfeel.SGD(clip=1.0)"),
    **_all("tau1 tau2 alpha", "schedule.{}", "is the schedule's: schedule=Schedule(2, 1, 5)"),
    **_all("epochs iterations num_rounds", "steps", "steps= says how many local updates"),
    **_all("criterion loss_fn", "model.loss", "is called loss here"),
    **_all("test_data test_dataset validation", "data.name", "is called test here"),
    **_all("topology graph", "network.graph", "is the network's: Network([[0, 1]], [])"),
    **_all("clusters", "network.{}", "is the network's: Network([[0, 1]], [])"),
}


def word_of_others(name: str, known: Iterable[str]) -> str | None:
    """Find the word of others that `name` is, also misspelt; None if one of `known` is nearer."""
    near = difflib.get_close_matches(name, [*known, *WORDS], n=1, cutoff=0.75)
    return near[0] if near and near[0] in WORDS else None


def ours(name: str, known: Iterable[str]) -> str | None:
    """Return our key of a file for a word of others."""
    word = word_of_others(name, known)
    return None if word is None else WORDS[word][0]
