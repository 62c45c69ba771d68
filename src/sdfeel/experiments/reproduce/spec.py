"""The files of `settings/`: what each figure runs, draws and claims."""

from __future__ import annotations

from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sdfeel.errors import InputError, closest
from sdfeel.experiments.config import Variant
from sdfeel.toml import read_toml

__all__ = [
    "TARGETS",
    "Bias",
    "Claim",
    "Drawing",
    "Planned",
    "Planning",
    "Profile",
    "Setting",
    "Target",
    "read_target",
    "setting",
]

# In the order of the paper; the last ones go beyond it.
TARGETS = (
    "fig3",
    "fig4",
    "fig4-tau2",
    "fig5-topology",
    "fig5-alpha",
    "fig6",
    "averagers",
    "planner",
    "methods",
    "devices",
)

X = Literal["seconds", "iteration"]
Planned = Literal["schedule", "codecs", "correction", "local"]
Y = Literal["train_loss", "test_accuracy", "server_accuracy_mean", "disagreement", "idle_share"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Planning(_Strict):
    """How much the planner may try: its pilot, who races and for how long (see its `Effort`).

    seconds  simulated, for which it plans; the profile's by default
    """

    seconds: float | None = Field(default=None, gt=0)
    pilot: int = Field(ge=10)
    racers: int = Field(ge=1)
    heats: int = Field(ge=1)
    iterations: int = Field(ge=1)

    def scaled(self, part: float) -> Planning:
        """For runs of a part of the length."""
        shorter = {"pilot": max(10, round(self.pilot * part))}
        return self.model_copy(update=shorter | {"iterations": max(1, int(self.iterations * part))})


class Profile(_Strict):
    """How long and how often; the numbers of `--quick`, of the default and of `--full`.

    seconds, iterations  a run is long enough for both: the panel over time, that over iterations
    points               evaluations of a run, which fall on ends of rounds
    planning             for figures with a planned curve: its budget is `seconds`, or its own
    """

    seeds: int = Field(ge=1)
    seconds: float | None = Field(default=None, gt=0)
    iterations: int | None = Field(default=None, ge=1)
    points: int = Field(ge=2)
    planning: Planning | None = None

    @model_validator(mode="after")
    def _budgeted(self) -> Profile:
        if self.planning is not None and not self.planning.seconds and not self.seconds:
            raise ValueError("planning: the planner's budget is `seconds`, which must be given")
        return self

    @property
    def budget(self) -> float:
        """Simulated seconds for which is planned."""
        own = self.planning.seconds if self.planning is not None else None
        return own or self.seconds or 0.0


class Sampling(_Strict):
    """On how many samples a profile evaluates, and whether it also evaluates every server."""

    train_samples: int | None = None
    test_samples: int | None = None
    servers: bool = False


class Setting(_Strict):
    """`setting.toml`: the paper's sections IV-A and IV-B, and what holds for all figures.

    length  by data set: the part of a profile's length that it needs
    """

    run: dict[str, Any]
    length: dict[str, float]
    evaluation: dict[str, Sampling]


class CurveSpec(Variant):
    """A curve, fixed or planned.

    planned  what the planner chooses: the schedule with its averager, and beside it codecs, the
             correction, the local rule with its rate
    horizon  for how much of the planning's time it is planned
    length   how long it is against the profile's length
    """

    planned: list[Planned] = Field(default_factory=list)
    horizon: float = Field(default=1.0, gt=0)
    length: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _scheduled(self) -> CurveSpec:
        if self.planned and "schedule" not in self.planned:
            raise ValueError(f"{self.label}: the planner always chooses the schedule: name it")
        return self


class PanelSpec(_Strict):
    x: X
    y: Y
    title: str | None = None  # the name of y by default
    curves: list[str] = Field(default_factory=list)  # all of them by default


class Drawing(_Strict):
    """One picture: panels side by side."""

    name: str
    title: str
    panel: list[PanelSpec]


class Claim(_Strict):
    """A statement that can fail.

    says       the statement in our words, with what it is measured by
    paper      the paper's words, or "" where the statement is ours
    kind       order    curves from best to worst, each better than the next by `threshold`
               best     the first curve better than every other by `threshold`
               within   two curves differ by `threshold` at most
               keeps    the first curve ends worse than the second by `threshold` of it at most
               most     no curve is ever above `threshold`
               behind   the first curve reaches what the second ends with in 1/`threshold` of its
                        time
               sooner   the first curve reaches `level` in 1/`threshold` of the second's time; where
                        the second never does, its whole length is what it took at least: less than
                        `threshold` times the first's says nothing
               rougher  the first curve is `threshold` times as unsteady as the second
               falls    each curve still falls from its middle to its end
    at         end: the last fifth of the stretch that all curves cover; whole: all of it
    """

    name: str
    says: str
    paper: str = ""
    reading: str = ""
    kind: Literal[
        "order", "best", "within", "keeps", "most", "behind", "sooner", "rougher", "falls"
    ]
    curves: list[str]
    x: X
    y: Y
    at: Literal["end", "whole"] = "end"
    threshold: float = 0.0
    level: float | None = None

    @model_validator(mode="after")
    def _levelled(self) -> Claim:
        if (self.kind == "sooner") != (self.level is not None):
            raise ValueError(f"{self.name}: `level` goes with the kind sooner, and with no other")
        return self


class Bias(_Strict):
    """Curves whose final models are held against every cluster's data, and what they differ from.

    against  a curve whose model no cluster pulls to its data by being fast
    """

    against: str
    curves: list[str]


class Target(_Strict):
    """One file: the runs of a figure, how it is drawn and what it must show."""

    name: str
    title: str
    notes: list[str] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)
    profile: dict[str, Profile]
    curve: list[CurveSpec]
    drawing: list[Drawing]
    claim: list[Claim]
    bias: list[Bias] = Field(default_factory=list)


def read_target(name: str) -> Target:
    """The settings of a figure."""
    if name not in TARGETS:
        raise InputError("figure", name, closest(name, [*TARGETS, "all"]))
    target = Target.model_validate({"name": name, **_table(name)})
    known = [curve.label for curve in target.curve]
    planned = any(curve.planned for curve in target.curve)
    for key, profile in target.profile.items():
        if planned != (profile.planning is not None):
            raise InputError(
                f"{name}: profile {key}",
                profile.planning,
                "planning and a planned curve go together",
            )
    used = [panel.curves for drawing in target.drawing for panel in drawing.panel]
    for label in [label for labels in used for label in labels]:
        _check(label, known, f"{name}: drawing")
    for claim in target.claim:
        for label in claim.curves:
            _check(label, known, f"{name}: claim {claim.name}")
    for bias in target.bias:
        for label in [bias.against, *bias.curves]:
            _check(label, known, f"{name}: bias")
    return target


def setting() -> Setting:
    """What all figures share."""
    return Setting.model_validate(_table("setting"))


def _table(name: str) -> dict[str, Any]:
    path = resources.files("sdfeel.experiments.reproduce") / "settings" / f"{name}.toml"
    return read_toml(path.read_text("utf-8"), name)


def _check(label: str, known: list[str], where: str) -> None:
    if label not in known:
        raise InputError(where, label, closest(label, known))
