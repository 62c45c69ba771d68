"""Flower's strategies: what each means as settings of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sdfeel.errors import InputError

__all__ = ["Meaning", "meaning_of"]

TREES = ("FedXgbBagging", "FedXgbCyclic", "FedXgbNnAvg")
# Strategies that average otherwise, and the setting that comes nearest.
NEAREST = {
    "FedAdagrad": 'server_optimizer.name="fedadagrad"',
    "FedAdam": 'server_optimizer.name="fedadam" (without correction of its beginning)',
    "FedYogi": 'server_optimizer.name="fedyogi"',
    "FedMedian": 'averaging_rule.name="median" (weighted)',
    "FedTrimmedAvg": 'averaging_rule.name="trimmed" (weighted)',
    "Krum": 'averaging_rule.name="median"',
    "MultiKrum": 'averaging_rule.name="trimmed"',
    "Bulyan": 'averaging_rule.name="trimmed"',
}
# What a strategy may do otherwise, and is not called here.
UNCALLED = ("aggregate_train", "aggregate_fit", "start")


@dataclass(frozen=True)
class Meaning:
    """Settings of a run by the names of `Settings`, and what is to be said of them."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def meaning_of(strategy: Any, clients: int, is_free: bool) -> Meaning:
    """Return what a strategy means here; with `is_free` the user has said how models are averaged.

    Raises:
        InputError: it is none of those that are carried out.
    """
    names = [kind.__name__ for kind in type(strategy).__mro__ if kind.__module__.startswith("flwr")]
    name, shown = names[0] if names else "", type(strategy).__name__
    if name in TREES:
        raise InputError(
            "flower.server",
            shown,
            "trees are put together and not averaged, and here servers average arrays of numbers",
        )
    settings, notes = _settings(name, strategy), list[str]()
    if settings is None and not is_free:
        near = f"; the nearest here: --set {NEAREST[name]}" if name in NEAREST else ""
        remedy = f"this strategy's averaging is not carried out{near}"
        raise InputError("flower.server", shown, remedy)
    overridden = [each for each in UNCALLED if _is_overridden(type(strategy), each)]
    if overridden:
        named = " and ".join(f"`{each}`" for each in overridden)
        notes.append(f"{shown} is carried out as {name}, without its own {named}")
    share = getattr(strategy, "fraction_train", getattr(strategy, "fraction_fit", 1.0))
    least = getattr(strategy, "min_train_nodes", getattr(strategy, "min_fit_clients", 0))
    share = min(1.0, max(share * clients, least) / clients)
    if share < 1:
        notes.append(f"each client takes part in a round with probability {share:.3g}")
        settings = {**(settings or {}), "participation": share}
    return Meaning(settings or {}, tuple(notes))


def _settings(name: str, strategy: Any) -> dict[str, Any] | None:
    """Return the settings of what is carried out exactly; None for anything else."""
    if name in ("FedAvg", "FedProx"):  # the proximal term is told in the config, and the app's
        return {}
    if name == "FedAvgM":
        eta, momentum = strategy.server_learning_rate, strategy.server_momentum
        return {"server_optimizer": {"name": "fedavgm", "eta": eta, "momentum": momentum}}
    return None


def _is_overridden(kind: type, name: str) -> bool:
    """Whether a method comes from outside of Flower."""
    owner = next((each for each in kind.__mro__ if name in vars(each)), None)
    return owner is not None and not owner.__module__.startswith("flwr")
