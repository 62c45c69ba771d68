"""plan.json: a plan on disk, with all that its prediction needs to be asked again.

It holds the pilot's path, the fitted numbers, the network with what its clients hold, the clock,
the settings that stay and the candidates that raced: a reader predicts any schedule without
training anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, profile_of, profile_table
from sdfeel.errors import InputError, SdfeelError
from sdfeel.files import check_writable, write_json
from sdfeel.network import Clusters, Network
from sdfeel.network.graphs import GraphLike
from sdfeel.planner.candidate import Candidate, Place
from sdfeel.planner.grid import MAX_AMPLIFICATION
from sdfeel.planner.pilot import PathPoint, PilotPath
from sdfeel.planner.prediction import Numbers, Predictor
from sdfeel.planner.price import Amount, Array, LossCurve
from sdfeel.planner.race import Objective
from sdfeel.records.reading import UnusableFile, read_object
from sdfeel.simulation.settings import Settings
from sdfeel.validation import validated

if TYPE_CHECKING:
    from sdfeel.planner.plan import Plan

__all__ = ["PLAN", "candidate_of", "place_of", "predicted", "read_plan", "save_plan"]

PLAN = "plan.json"
VERSION = 2
MOST = 1e15  # a loss above it is none
LONGEST = 10_000  # tau1, tau2 and alpha: a price is read off the events of whole rounds
# The settings that stay and that decide what a candidate costs, or is refused for.
STAY = (
    "scheme", "participation", "averaging_rule", "server_optimizer", "optimizer", "lr", "pace",
    "seed",
)  # fmt: skip

Whole = Annotated[int, Field(ge=0, le=10**12)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Curve(_Part):
    iterations: list[Whole]
    seconds: list[Amount]
    losses: list[Amount | None]  # a run that diverged ends with null

    def curve(self, where: str) -> LossCurve:
        lengths = {len(self.iterations), len(self.seconds), len(self.losses)}
        if len(lengths) != 1 or not self.iterations:
            raise InputError(where, sorted(lengths), "as many iterations as seconds and losses")
        if any(b <= a for a, b in zip(self.iterations, self.iterations[1:], strict=False)):
            raise InputError(f"{where}.iterations", self.iterations[:5], "numbers that rise")
        losses = [math.inf if loss is None else loss for loss in self.losses]
        return LossCurve(np.array(self.iterations), np.array(self.seconds), np.array(losses))


class _Raced(_Curve):
    settings: dict[str, Any]
    dropped_at: Amount | None = None


class _Network(_Part):
    clusters: list[list[Whole]]
    links: list[tuple[Whole, Whole]]
    samples: list[Annotated[float, Field(ge=1e-6, le=1e12)]]


class _File(_Part):
    """What the file holds, by its keys; choice and best are places in the list `raced`."""

    version: int
    objective: Objective
    choice: Whole
    best: Whole
    raced: list[_Raced]
    reasons: list[str]
    report: dict[str, Any]
    pilot: _Curve
    points: list[PathPoint]
    lr: Amount
    numbers: Numbers
    network: _Network
    profile: dict[str, Any]
    parameters: Whole
    settings: dict[str, Any]


def save_plan(plan: Plan, folder: str | Path) -> Path:
    """Write plan.json into `folder`, in place of one that is there."""
    path = Path(folder)
    check_writable(path)
    place, predictor, raced = plan.place, plan.predictor, plan.raced
    network = place.network
    content = {
        "version": VERSION,
        "objective": vars(plan.objective),
        "choice": raced.index(plan.choice),
        "best": raced.index(plan.best),
        "raced": [
            {
                "settings": _readable(place.settings.model_copy(update=row.settings), row.settings),
                **_curve(row.curve),
                "dropped_at": row.dropped_at,
            }
            for row in raced
        ],
        "reasons": list(plan.reasons),
        "report": plan.report,
        "pilot": _curve(predictor.path.curve),
        "points": [vars(point) for point in predictor.path.points],
        "lr": predictor.path.lr,
        "numbers": vars(predictor.numbers),
        "network": {
            "clusters": [list(members) for members in network.clusters.members],
            "links": sorted(sorted(link) for link in network.graph.edges()),
            "samples": list(network.shares.samples),
        },
        "profile": profile_table(place.profile),
        "parameters": place.parameters,
        "settings": _readable(place.settings, STAY),
    }
    write_json(path / PLAN, content, allow_nan=False)
    return path / PLAN


def _curve(curve: LossCurve) -> dict[str, list[Any]]:
    table = {name: part.tolist() for name, part in vars(curve).items()}
    return table | {"losses": [loss if loss <= MOST else None for loss in table["losses"]]}


def _readable(settings: Settings, names: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, as `Settings.of` reads them; an object of the user's takes its default.

    It decides neither the prediction nor, but for what it makes an algorithm refuse, a price.
    """
    given = Settings.take_from(settings.table())
    readable = {}
    for name in names:
        try:
            Settings.of({name: given[name]})
        except InputError:
            continue
        readable[name] = given[name]
    return readable


Spend = Callable[[int, int, int, Settings], None]


def read_plan(
    folder: str | Path, *, spend: Spend | None = None, within: Path | None = None
) -> Plan:
    """Read the plan in `folder`.

    Args:
        folder: that holds a plan.json.
        spend: is told servers, clients, links and settings of every candidate before it is priced,
            and refuses what is too much.
        within: see `sdfeel.records.reading.read_regular`.

    Raises:
        InputError: what of its plan.json is damaged, or that it is of another version.
    """
    path = Path(folder) / PLAN
    try:
        content = read_object(path, within)
    except FileNotFoundError:
        remedy = "is not there; `sdfeel plan --out FOLDER` writes it"
        raise InputError("plan", str(path), remedy) from None
    except UnusableFile as problem:
        raise InputError("plan", str(path), str(problem)) from None
    where, version = str(path), content.get("version")
    if version != VERSION:
        raise InputError(f"{where}: version", version, f"this sdfeel reads version {VERSION}")
    try:
        with np.errstate(all="ignore"):
            return _plan(validated(_File, content), spend)
    except SdfeelError as problem:
        field, value = getattr(problem, "field", PLAN), getattr(problem, "value", "")
        remedy = problem.remedy if isinstance(problem, InputError) else str(problem)
        raise InputError(f"{where}: {field}", value, f"is damaged: {remedy}") from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
        raise InputError("plan", where, f"is damaged: {problem!r}") from None


def _plan(file: _File, spend: Spend | None) -> Plan:
    from sdfeel.planner.plan import Plan  # which saves itself by this module

    if spend is not None:
        sizes, stay = (
            [len(members) for members in file.network.clusters],
            Settings.of(file.settings),
        )
        for each in file.raced:
            changes = Settings.of(each.settings)
            named = {name: getattr(changes, name) for name in each.settings}
            settings = stay.model_copy(update=named)
            spend(len(sizes), sum(sizes), len(file.network.links), settings)
    network = Network(
        Clusters.of(file.network.clusters), file.network.links, np.array(file.network.samples)
    )
    profile = profile_of(file.profile, "planned")
    place = Place(Settings.of(file.settings), network, profile, file.parameters)
    rows = [_candidate(each, place) for each in file.raced]
    plan = Plan(file.objective, place, grid=rows, report=file.report, reasons=tuple(file.reasons))
    plan.predictor, plan.choice, plan.best = _predictor(file), rows[file.choice], rows[file.best]
    plan.predict(rows)
    for row in (plan.choice, plan.best):
        if not np.isfinite(plan.objective.headline(row)).all():
            raise InputError("choice", file.choice, "a run that reached what was planned for")
    return plan


def _candidate(file: _Raced, place: Place) -> Candidate:
    settings = Settings.of(file.settings)
    if max(settings.schedule.at(0)) > LONGEST:
        raise InputError("schedule", settings.schedule, f"numbers up to {LONGEST}")
    row = place.candidate(**{name: getattr(settings, name) for name in file.settings})
    row.curve, row.dropped_at = file.curve("raced"), file.dropped_at
    return row


def _predictor(file: _File) -> Predictor:
    curve = file.pilot.curve("pilot")
    if min(curve.losses) <= 0 or not np.isfinite(curve.losses).all():
        raise InputError("pilot.losses", file.pilot.losses[:3], "losses above 0")
    if not file.points or file.lr <= 0:
        raise InputError("lr", file.lr, "a rate above 0, and points along the pilot's path")
    path = PilotPath(curve, tuple(file.points), file.lr)
    if len(path.levels[0]) < 2:
        raise InputError("pilot.losses", file.pilot.losses[:3], "a loss that falls")
    return Predictor(path, file.numbers)


def predicted(
    plan: Plan,
    schedule: Schedule | None = None,
    averager: str | None = None,
    methods: Mapping[str, Any] | None = None,
    *,
    graph: GraphLike | None = None,
    profile: LatencyProfile | None = None,
) -> tuple[Array, Array]:
    """Predict a curve, relative to what was measured of the choice: (seconds, losses).

    It goes as far as the pilot did, and on where the plan is for a budget; it ends where the
    schedule gets no further.

    Args:
        plan: as it was made, or read.
        schedule: as chosen by default; so is the averager.
        averager: a name.
        methods: by the keys that set them: {"codecs.up": "int8", "correction": "two-level"}; what
            is not named is float32 and no correction. None: plain, or all as chosen if nothing else
            is given.
        graph: another one of the same servers.
        profile: another clock.

    Raises:
        InputError: what an algorithm refuses.
    """
    settings: dict[str, Any] = {}
    if schedule is not None or averager is not None or methods is not None:
        names = methods or {}
        ways = {key[7:]: name for key, name in names.items() if key.startswith("codecs.")}
        settings = {"codecs": ways, "correction": names.get("correction", "none")}
        settings |= {} if schedule is None else {"schedule": schedule}
        settings |= {} if averager is None else {"averager": averager}
    with np.errstate(all="ignore"):  # infinite is never
        if not settings and graph is None and profile is None:
            table = plan.predicted()
            return table["seconds"].to_numpy(), table["loss"].to_numpy()
        curve = plan.expected(candidate_of(plan, settings, graph=graph, profile=profile))
    return curve.seconds, curve.losses


def place_of(
    plan: Plan, *, graph: GraphLike | None = None, profile: LatencyProfile | None = None
) -> Place:
    """Where a plan's candidates would train, on another graph or with another clock."""
    network = plan.place.network
    if graph is not None:
        network = Network(network.clusters, graph, np.array(network.shares.samples))
    return plan.place.elsewhere(network, profile)


def candidate_of(
    plan: Plan,
    settings: Mapping[str, Any],
    *,
    graph: GraphLike | None = None,
    profile: LatencyProfile | None = None,
) -> Candidate:
    """The choice; or a candidate that differs from the best in rounds by some settings."""
    checked = Settings.of(settings)
    changes = {name: getattr(checked, name) for name in settings}
    base = plan.best if settings else plan.choice
    place = place_of(plan, graph=graph, profile=profile)
    row = place.candidate(**{**base.settings, **changes})
    if row.averager.amplification > MAX_AMPLIFICATION:
        remedy = "enlarges rounding errors too much on this network"
        raise InputError("averager", row.averager.name, remedy)
    return row
