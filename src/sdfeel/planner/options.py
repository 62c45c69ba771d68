"""How clients may step: local rules and rates that stand to choice, and how each did when tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sdfeel.algorithm.local import LOCAL_RULES, LocalRule, local_rule
from sdfeel.algorithm.rates import Constant, Rate, ShapedRate
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.race import Laboratory

__all__ = ["PLANNED_RATES", "PLANNED_RULES", "Option", "Trial", "rated", "rule_named"]

# What a reproduction chooses from. Adam and AdamW take no correction, and the fast engine not them.
PLANNED_RULES = ("sgd", "momentum")
PLANNED_RATES = (0.003, 0.01, 0.03, 0.1)


@dataclass(frozen=True, eq=False)
class Option:
    """A local rule with its rate, where it is trained, and what stands to choice beside it."""

    local: LocalRule
    lr: Rate
    laboratory: Laboratory
    grid: Sequence[Candidate]

    @property
    def name(self) -> str:
        """The rule as settings call it; one's own goes by its class."""
        kind = type(self.local)
        return next((name for name, known in LOCAL_RULES.items() if known is kind), kind.__name__)

    @property
    def eta(self) -> float:
        """The rate, by which all of its shape is scaled."""
        return float(self.lr.eta) if isinstance(self.lr, ShapedRate) else float(self.lr(1))

    def __str__(self) -> str:
        return f"{self.name}, rate {self.eta:g}"


@dataclass(frozen=True, eq=False)
class Trial:
    """How an option did beside the others.

    losses      after the seconds of each rung that it took part in; infinite where it diverged
    seconds     simulated, of these rungs
    iterations  of its runs; those of an option that was planned with are part of its plan
    planned     whether schedules were planned with it
    """

    option: Option
    losses: tuple[float, ...]
    seconds: tuple[float, ...]
    iterations: int
    planned: bool


def rule_named(name: str, own: LocalRule) -> LocalRule:
    """The rule of this name with its defaults; what every rule has is as `own` has it."""
    found = local_rule(name)
    if type(found) is type(own):
        return own
    decay = own.weight_decay or found.weight_decay
    return replace(found, weight_decay=decay, prox=own.prox, clip=own.clip, memory=own.memory)


def rated(eta: float, own: Rate) -> Rate:
    """A rate in the shape over the iterations that `own` has."""
    return replace(own, eta=eta) if isinstance(own, ShapedRate) else Constant(eta)
