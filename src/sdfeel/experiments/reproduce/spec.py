"""The files of `settings/` and `published/`: what each figure runs, draws and claims."""

from __future__ import annotations

from dataclasses import dataclass
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
    "attacks",
)


@dataclass(frozen=True)
class Collection:
    """Figures that belong together.

    command  of the command line that carries them out
    folder   of their files, beside this one
    targets  their names, in order
    """

    command: str
    folder: str
    targets: tuple[str, ...]


PAPER = Collection("reproduce", "settings", TARGETS)
# Experiments of others, with the numbers that they published.
PUBLISHED = Collection(
    "verify", "published", ("mll-sgd", "dumbbell", "cycle-times", "flute", "hierfl")
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

    seconds, iterations  a run is long enough for both: the panel over time, that over iterations;
                         where a curve has `steps` of its own, iterations bound them
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
               value    the curve is `published`, give or take `tolerance`; at x = `where`, or on
                        the average of its last fifth
               lasts    the run takes less than `threshold` real seconds
               cycle    the cycle time of `overlay` on `underlay` is `published`, give or take
                        `tolerance`
    at         end: the last fifth of the stretch that all curves cover; whole: all of it
    where      up to where the curves must go, or the claim is open
    published  a number of others; tolerance: how far ours may be from it, stated beforehand
    """

    name: str
    says: str
    paper: str = ""
    reading: str = ""
    kind: Literal[
        "order", "best", "within", "keeps", "most", "behind", "sooner", "rougher", "falls",
        "value", "lasts", "cycle",
    ]  # fmt: skip
    curves: list[str] = Field(default_factory=list)
    x: X = "iteration"
    y: Y = "train_loss"
    at: Literal["end", "whole"] = "end"
    threshold: float = 0.0
    level: float | None = None
    where: float | None = None
    published: float | None = None
    tolerance: Positive | None = None
    underlay: str | None = None
    overlay: Literal["star", "tree", "ring"] | None = None

    @model_validator(mode="after")
    def _whole(self) -> Claim:
        if (self.kind == "sooner") != (self.level is not None):
            raise ValueError(f"{self.name}: `level` goes with the kind sooner, and with no other")
        has_number = self.published is not None and self.tolerance is not None
        if (self.kind in ("value", "cycle")) and not has_number:
            raise ValueError(f"{self.name}: {self.kind} needs `published` and `tolerance`")
        is_cycle = self.kind == "cycle"
        has_cycle = [self.underlay is not None, self.overlay is not None, not self.curves]
        if has_cycle != [is_cycle] * 3:
            raise ValueError(f"{self.name}: a cycle has `underlay` and `overlay`, others `curves`")
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
    """A file of settings: the runs of a figure, how it is drawn and what it must show.

    source  whose numbers they are, where they are not the paper's: repository and file
    """

    name: str
    title: str
    source: str = ""
    notes: list[str] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)
    profile: dict[str, Profile]
    curve: list[CurveSpec] = Field(default_factory=list)
    drawing: list[Drawing] = Field(default_factory=list)
    claim: list[Claim]
    bias: list[Bias] = Field(default_factory=list)


def read_target(name: str, collection: Collection = PAPER) -> Target:
    """Read and check the settings of a figure."""
    if name not in collection.targets:
        raise InputError("figure", name, closest(name, [*collection.targets, "all"]))
    target = Target.model_validate({"name": name, **_table(name, collection)})
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


def setting(collection: Collection = PAPER) -> Setting:
    """Read what all figures share."""
    return Setting.model_validate(_table("setting", collection))


def _table(name: str, collection: Collection) -> dict[str, Any]:
    return read_toml(Path(__file__).parent / collection.folder / f"{name}.toml", name)
