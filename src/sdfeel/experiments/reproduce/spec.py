"""The files of `settings/`: what each figure runs, draws and claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from sdfeel.errors import InputError, closest
from sdfeel.experiments.config import Strict, Variant
from sdfeel.toml import read_toml
from sdfeel.validation import Count, Positive

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
Planned = Literal["schedule", "codecs", "correction", "optimizer"]
Y = Literal["train_loss", "test_accuracy", "server_accuracy_mean", "disagreement", "idle_share"]


class Planning(Strict):
    """The effort of the planner: its pilot, how many race and for how long (see its `Effort`).

    seconds  simulated, for which it plans; the profile's by default
    """

    seconds: Positive | None = None
    pilot: int = Field(ge=10)
    racers: Count
    heats: Count
    iterations: Count

    def scaled(self, part: float) -> Planning:
        """Return the same for runs of a part of the length."""
        shorter = {"pilot": max(10, round(self.pilot * part))}
        return self.model_copy(update=shorter | {"iterations": max(1, int(self.iterations * part))})


class Profile(Strict):
    """The length of runs and the number of seeds, for `--quick`, the default and `--full`.

    seconds, iterations  a run is long enough for both: the panel over time, that over iterations
    points               evaluations of a run, which fall on ends of rounds
    planning             for figures with a planned curve: its budget is `seconds`, or its own
    """

    seeds: Count
    seconds: Positive | None = None
    iterations: Count | None = None
    points: int = Field(ge=2)
    planning: Planning | None = None

    @model_validator(mode="after")
    def _budgeted(self) -> Profile:
        if self.planning is not None and not self.planning.seconds and not self.seconds:
            raise ValueError("planning: the planner's budget is `seconds`, which must be given")
        return self

    @property
    def budget(self) -> float:
        """Return the simulated seconds that are planned for."""
        planned = self.planning.seconds if self.planning is not None else None
        return planned or self.seconds or 0.0


class Sampling(Strict):
    """The samples on which a profile evaluates, and whether it also evaluates every server."""

    train_samples: int | None = None
    test_samples: int | None = None
    servers: bool = False


class Setting(Strict):
    """`setting.toml`: the paper's sections IV-A and IV-B, and what holds for all figures.

    length  by data set: the part of a profile's length that it needs
    """

    run: dict[str, Any]
    length: dict[str, float]
    evaluation: dict[str, Sampling]


class CurveSpec(Variant):
    """A curve, fixed or planned.

    planned  what the planner chooses: the schedule with its averager, and beside it codecs, the
             correction, the optimizer with its rate
    horizon  for how much of the planning's time it is planned
    length   how long it is against the profile's length
    """

    planned: list[Planned] = Field(default_factory=list)
    horizon: Positive = 1.0
    length: Positive = 1.0

    @model_validator(mode="after")
    def _scheduled(self) -> CurveSpec:
        if self.planned and "schedule" not in self.planned:
            raise ValueError(f"{self.label}: the planner always chooses the schedule: name it")
        return self


class PanelSpec(Strict):
    x: X
    y: Y
    title: str | None = None  # the name of y by default
    curves: list[str] = Field(default_factory=list)  # all of them by default


class Drawing(Strict):
    """A picture: panels side by side."""

    name: str
    title: str
    panel: list[PanelSpec]


class Claim(Strict):
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


class Bias(Strict):
    """Curves whose final models are compared on every cluster's data, and what with.

    against  a curve whose model no cluster pulls to its data by being fast
    """

    against: str
    curves: list[str]

    @property
    def labels(self) -> list[str]:
        return [self.against, *self.curves]


class Target(Strict):
    """A file of settings: the runs of a figure, how it is drawn and what it must show."""

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
    """Read and check the settings of a figure."""
    if name not in TARGETS:
        raise InputError("figure", name, closest(name, [*TARGETS, "all"]))
    target = Target.model_validate({"name": name, **_table(name)})
    is_planned = any(curve.planned for curve in target.curve)
    for key, profile in target.profile.items():
        if is_planned != (profile.planning is not None):
            remedy = "planning and a planned curve go together"
            raise InputError(f"{name}: profile {key}", profile.planning, remedy)
    used = {f"drawing {d.name}": [c for p in d.panel for c in p.curves] for d in target.drawing}
    used |= {f"claim {claim.name}": claim.curves for claim in target.claim}
    used |= {"bias": [label for bias in target.bias for label in bias.labels]}
    known = [curve.label for curve in target.curve]
    for where, labels in used.items():
        for label in labels:
            if label not in known:
                raise InputError(f"{name}: {where}", label, closest(label, known))
    return target


def setting() -> Setting:
    """Read what all figures share."""
    return Setting.model_validate(_table("setting"))


def _table(name: str) -> dict[str, Any]:
    return read_toml(Path(__file__).with_name("settings") / f"{name}.toml", name)
