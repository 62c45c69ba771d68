"""plan.json: a plan on disk, with all that its prediction needs to be asked again.

It holds the pilot's path, the fitted numbers, the network with what its clients hold, the clock
and the settings that stay: a reader predicts any schedule without training anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, profile_of, profile_table
from sdfeel.errors import InputError, SdfeelError
from sdfeel.files import check_writable, write_atomically
from sdfeel.network import Clusters, Network
from sdfeel.network.graphs import GraphLike
from sdfeel.planner.assembling import assembling
from sdfeel.planner.candidates import Candidate, candidates
from sdfeel.planner.methods import PLAIN, Methods, methods_of
from sdfeel.planner.pilot_path import Array, LossCurve, PilotPath
from sdfeel.planner.plan_file import (
    PLAN,
    VERSION,
    PlanFile,
    content_of,
    curve_table,
    finite,
    point_of,
    point_table,
)
from sdfeel.planner.prediction import Numbers, Predictor
from sdfeel.planner.race import Entrant, Objective
from sdfeel.simulation.settings import Settings
from sdfeel.validation import validated

if TYPE_CHECKING:
    from sdfeel.planner.planner import Recommendation
    from sdfeel.simulation.simulation import Simulation

__all__ = ["PLAN", "RacedCurve", "SavedPlan", "predicted", "read_plan", "save_plan"]

# The settings that stay and that decide what a candidate costs, or is refused for.
STAY = ("scheme", "participation", "averaging_rule", "server", "local", "lr", "seed")


@dataclass(frozen=True, eq=False)
class RacedCurve:
    """What a candidate showed in its race; `dropped_at`: simulated seconds, None if it stayed."""

    label: str
    choice: Mapping[str, Any]
    curve: LossCurve
    dropped_at: float | None


@dataclass(frozen=True, eq=False)
class SavedPlan:
    """A plan as `plan.json` has it.

    choice   what was chosen, by the keys of a ranking: tau1, tau2, alpha, averager, codecs.up, ...
    seconds  to the target, or the budget; `loss` is reached there (1 - accuracy for an accuracy)
    reasons  in lines, as `sdfeel plan` prints them
    ranking  the best by prediction, as rows of a table
    """

    objective: Objective
    choice: Mapping[str, Any]
    seconds: float
    loss: float
    reasons: tuple[str, ...]
    ranking: tuple[Mapping[str, Any], ...]
    raced: tuple[RacedCurve, ...]
    predictor: Predictor
    network: Network
    profile: LatencyProfile
    parameters: int
    settings: Settings

    @property
    def schedule(self) -> Schedule:
        """As chosen."""
        return Schedule(*(int(self.choice[name]) for name in ("tau1", "tau2", "alpha")))

    @property
    def methods(self) -> Methods:
        """As chosen."""
        return methods_from(self.choice)

    @property
    def averager(self) -> str:
        """As chosen."""
        return str(self.choice["averager"])


def predicted(
    plan: SavedPlan,
    schedule: Schedule | None = None,
    averager: str | None = None,
    methods: Methods | Mapping[str, Any] | None = None,
    *,
    graph: GraphLike | None = None,
    profile: LatencyProfile | None = None,
) -> tuple[Array, Array]:
    """(seconds, losses): the curve that a schedule is predicted to have; as chosen by default.

    methods  a `Methods`, or names by key: {"codecs.up": "int8", "correction": "two-level"}; what
             is not named is float32 and no correction. None: plain, or all as chosen if nothing
             else is given
    graph    another one of the same servers; profile: another clock

    It goes as far as the pilot did, and on where the plan is for a budget, as the planner's own
    prediction does; it ends where the schedule gets no further. InputError says what an algorithm
    refuses.
    """
    if schedule is None and averager is None and methods is None:
        methods = plan.methods
    schedule, averager = schedule or plan.schedule, averager or plan.averager
    own = methods if isinstance(methods, Methods) else methods_from(methods or {})
    with np.errstate(all="ignore"):  # infinite is never
        one = candidate_of(plan, schedule, averager, own, graph=graph, profile=profile)
        within = plan.objective.target is None
        losses, needed = plan.predictor.needed([one], beyond=within)
    there = np.isfinite(needed[0])
    return needed[0][there] * one.cost.per_iteration, losses[there]


def candidate_of(
    plan: SavedPlan,
    schedule: Schedule,
    averager: str,
    methods: Methods = PLAIN,
    *,
    graph: GraphLike | None = None,
    profile: LatencyProfile | None = None,
) -> Candidate:
    """A candidate with its price on the plan's network."""
    network, clock = plan.network, profile or plan.profile
    if graph is not None:
        network = Network(network.clusters, graph, np.array(network.shares.samples))
    assemble = assembling(plan.settings, network, clock, plan.parameters)
    latencies = clock.latencies(
        plan.parameters, network.clients, network.servers, seed=plan.settings.seed
    )
    found = candidates(
        network,
        latencies,
        tau1=(schedule.tau1,),
        tau2=(schedule.tau2,),
        alpha=(schedule.alpha,),
        averagers=(averager,),
        methods=(methods,),
        assemble=assemble,
    )
    if not found:
        raise InputError("averager", averager, "enlarges rounding errors too much on this network")
    return found[0]


def methods_from(names: Mapping[str, Any]) -> Methods:
    """From names by the key that sets them; keys of other things are passed over."""
    ways = {
        key.removeprefix("codecs."): name for key, name in names.items() if key[:7] == "codecs."
    }
    return methods_of(
        {way: (name,) for way, name in ways.items()}, (names.get("correction", "none"),)
    )[0]


def chosen(one: Candidate) -> dict[str, Any]:
    """A candidate by the keys of a ranking."""
    own = {"tau1": one.tau1, "tau2": one.tau2, "alpha": one.alpha, "averager": one.averager.name}
    return own | one.methods.names


def save_plan(
    folder: str | Path,
    found: Recommendation,
    simulation: Simulation,
    *,
    reasons: Sequence[str] = (),
    ranking: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """Write plan.json into `folder`, in place of one that is there."""
    path = Path(folder)
    check_writable(path)
    predictor, network = found.predictor, simulation.network
    content = {
        "version": VERSION,
        "objective": vars(found.objective),
        "choice": chosen(found.choice),
        "seconds": found.seconds,
        "loss": found.loss,
        "reasons": list(reasons),
        "ranking": [dict(row) for row in ranking],
        "raced": [_entrant(one) for one in found.raced],
        "pilot": curve_table(predictor.path.curve),
        "points": [point_table(point) for point in predictor.path.points],
        "lr": predictor.path.lr,
        "numbers": vars(predictor.numbers),
        "network": {
            "clusters": [list(members) for members in network.clusters.members],
            "links": sorted(sorted(link) for link in network.graph.edges()),
            "samples": list(network.shares.samples),
        },
        "profile": profile_table(simulation.profile),
        "parameters": simulation.problem.layout.parameters,
        "settings": _staying(simulation.settings),
    }
    text = json.dumps(finite(content), indent=1, allow_nan=False, default=str) + "\n"
    write_atomically(path / PLAN, text.encode())
    return path / PLAN


def read_plan(folder: str | Path) -> SavedPlan:
    """The plan in `folder`; an InputError says what of its plan.json is damaged."""
    path = Path(folder) / PLAN
    content = content_of(path)
    where = str(path)
    version = content.get("version")
    if version != VERSION:
        raise InputError(f"{where}: version", version, f"this sdfeel reads version {VERSION}")
    try:
        with np.errstate(all="ignore"):
            return _plan(validated(PlanFile, content))
    except SdfeelError as problem:
        field = getattr(problem, "field", PLAN)
        raise InputError(
            f"{where}: {field}", getattr(problem, "value", ""), f"is damaged: {_remedy(problem)}"
        ) from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as problem:
        raise InputError("plan", where, f"is damaged: {problem!r}") from None


def _plan(file: PlanFile) -> SavedPlan:
    curve = file.pilot.curve("pilot")
    if min(curve.losses) <= 0:
        raise InputError("pilot.losses", min(file.pilot.losses), "losses above 0")
    if not file.points or file.lr <= 0:
        raise InputError("lr", file.lr, "a rate above 0, and points along the pilot's path")
    known = {field.name for field in fields(Numbers)}
    if not set(file.numbers) <= known:
        raise InputError("numbers", sorted(set(file.numbers) - known)[0], "unknown number")
    told = {name: value for name, value in file.numbers.items() if value is not None}
    path = PilotPath(curve, tuple(point_of(point) for point in file.points), file.lr)
    if len(path.levels[0]) < 2:
        raise InputError("pilot.losses", file.pilot.losses[:3], "a loss that falls")
    network = Network(
        Clusters.of(file.network.clusters), file.network.links, np.array(file.network.samples)
    )
    plan = SavedPlan(
        objective=file.objective.objective(),
        choice=file.choice,
        seconds=file.seconds,
        loss=file.loss,
        reasons=tuple(file.reasons),
        ranking=tuple(file.ranking),
        raced=tuple(
            RacedCurve(one.label, one.choice, one.curve("raced"), one.dropped_at)
            for one in file.raced
        ),
        predictor=Predictor(path, Numbers(**told)),
        network=network,
        profile=profile_of(file.profile, "planned"),
        parameters=file.parameters,
        settings=Settings.of(file.settings),
    )
    candidate_of(plan, plan.schedule, plan.averager, plan.methods)
    return plan


def _remedy(problem: SdfeelError) -> str:
    return problem.remedy if isinstance(problem, InputError) else str(problem)


def _entrant(one: Entrant) -> dict[str, Any]:
    about = {"label": str(one.candidate), "choice": chosen(one.candidate)}
    return about | curve_table(one.run.curve) | {"dropped_at": one.dropped_at}


def _staying(settings: Settings) -> dict[str, Any]:
    """Settings by name, as they are read back; what is an object of the user's takes its default.

    It decides neither the prediction nor, but for what it makes an algorithm refuse, a price.
    """
    given = Settings.take_from(settings.table())
    kept = {}
    for name in STAY:
        try:
            Settings.of({name: given[name]})
        except InputError:
            continue
        kept[name] = given[name]
    return kept
