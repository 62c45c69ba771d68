"""Whether servers should wait for each other at all: other paces beside the best of rounds.

Where devices differ, and once the best of rounds is known, two kinds of pace are set beside it:

    deadline      its own schedule, in rounds that leave the slowest clients out
    asynchronous  each tau1 that stood to choice, which gives the servers' own deadlines; with full
                  compensation and with none

A pace's own timeline says how many iterations a second count, over all clusters d,

    sum_d m~_d s_d (iterations of d a second),      s_d = (the slowest rate / rate_d)^a

and for prediction a candidate is one of rounds that makes so many, with an exchange after every
upload period. That knows nothing of stale models, nor of data that is left out or counts for more.
So it says only who is tried, the best of each kind; they train, and what was measured decides: the
seconds to a target, or the loss at the time at which the race of rounds ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.asynchronous import Asynchronous, times_of
from sdfeel.algorithm.codecs import codecs_of
from sdfeel.algorithm.pace import Deadline, Pace
from sdfeel.algorithm.paces import PACES
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import Latencies
from sdfeel.errors import DivergedError, InputError
from sdfeel.planner.candidates import Candidate
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.planner.methods import Methods
from sdfeel.planner.pilot_path import LossCurve
from sdfeel.planner.planner import Recommendation
from sdfeel.planner.prediction import Predictor, iterations_to, reached
from sdfeel.planner.race import Objective
from sdfeel.records.checkpoints import Row
from sdfeel.simulation.named import to_table

__all__ = ["PacePlan", "Paced", "beside_rounds", "devices_differ"]

TURNS = 20  # of the slowest group, from which a timeline's iterations a second are taken
IN_TIME = (0.5, 0.75)  # shares of clients that a deadline waits for
ENOUGH = 10**9  # iterations: the time is over before


@dataclass(frozen=True, eq=False)
class Paced:
    """A pace with its schedule, and what is known of it.

    rate       iterations a second that count
    deadlines  seconds of a period: of each server, or one for all
    predicted  seconds to the target, or loss at the end
    measured   the same; None where it was not tried
    without    how many clients never take part
    """

    pace: Pace
    candidate: Candidate
    rate: float
    deadlines: tuple[float, ...]
    predicted: float
    measured: float | None = None
    without: int = 0

    @property
    def kind(self) -> str:
        """Of each kind one is tried."""
        if isinstance(self.pace, Asynchronous):
            return f"asynchronous, compensation {self.pace.compensation:g}"
        return "deadline"

    def __str__(self) -> str:
        if isinstance(self.pace, Deadline):
            return f"deadline {self.pace.seconds:.3g} s, {self.candidate}"
        return f"{self.kind}, tau1 {self.candidate.tau1}"

    @property
    def settings(self) -> dict[str, Any]:
        """As arguments of `sdfeel.train`; by turns without what is made for rounds."""
        one, rounds = self.candidate, isinstance(self.pace, Deadline)
        methods = one.methods
        up_and_down = {"up": methods.up, "down": methods.down}
        return {
            "schedule": Schedule(one.tau1, one.tau2, one.alpha),
            "averager": one.averager,
            "codecs": methods.codecs if rounds else codecs_of(up_and_down),
            "correction": methods.correction if rounds else None,
            "pace": self.pace,
        }

    def table(self) -> dict[str, Any]:
        """For JSON; not a number and never are None."""
        one = self.candidate
        scores = {"predicted": self.predicted, "measured": self.measured}
        return {
            "pace": to_table(self.pace, PACES),
            "schedule": {"tau1": one.tau1, "tau2": one.tau2, "alpha": one.alpha},
            "averager": one.averager.name,
            **one.methods.names,
            "deadlines": list(self.deadlines),
            "iterations_a_second": self.rate,
            "clients_left_out": self.without,
            **{k: v if v is not None and math.isfinite(v) else None for k, v in scores.items()},
        }


@dataclass(frozen=True, eq=False)
class PacePlan:
    """Paces beside rounds.

    rounds  what the best of rounds measured: seconds to the target, or loss after `until` seconds
    tried   the best of each kind, as they were measured
    """

    rounds: float
    until: float
    tried: tuple[Paced, ...]

    @property
    def choice(self) -> Paced | None:
        """The best, if it is better than rounds; None: let servers wait."""
        best = min(self.tried, key=_measured, default=None)
        return best if best is not None and _measured(best) < self.rounds else None

    def lines(self, goal: Objective) -> list[str]:
        """For people: the choice, and what was tried."""

        def shown(score: float | None) -> str:
            if score is None or not math.isfinite(score):
                return f"not within {self.until:.4g} s" if goal.target is not None else "diverged"
            return f"{score:.4g} s" if goal.target is not None else goal.shown(score)

        choice = self.choice
        after = "" if goal.target is not None else f" after {self.until:.4g} s"
        told = "synchronous, nothing else was better" if choice is None else str(choice)
        found = [f"pace: {told}; in rounds {shown(self.rounds)}{after}"]
        for one in self.tried:
            spans = f"{min(one.deadlines):.3g}"
            if len(one.deadlines) > 1:
                spans += f" to {max(one.deadlines):.3g}"
            scores = f"{shown(one.measured)}{after} (predicted {shown(one.predicted)})"
            found.append(f"tried: {one}: {scores}, periods of {spans} s")
        if choice is not None and choice.without:
            found.append(
                f"thin evidence: {choice.without} clients are never in time, and their data never "
                "counts: a longer run, or a lower target, may want it"
            )
        if goal.target is None and self.until < 0.9 * (goal.budget or math.inf):
            found.append(f"thin evidence: paces were compared after {self.until:.4g} s only")
        return found

    def table(self) -> dict[str, Any]:
        """For JSON."""
        choice = self.choice
        return {
            "name": "synchronous" if choice is None else to_table(choice.pace, PACES)["name"],
            "rounds": self.rounds,
            "until": self.until,
            "choice": None if choice is None else choice.table(),
            "tried": [one.table() for one in self.tried],
        }


def _measured(one: Paced) -> float:
    return math.inf if one.measured is None else one.measured


def devices_differ(latencies: Latencies) -> bool:
    """Whether some client computes or sends more slowly than another."""
    return bool(np.ptp(latencies.t_cmp) > 0 or np.ptp(latencies.t_ct_sr) > 0)


def beside_rounds(
    found: Recommendation,
    laboratory: TrainingLaboratory,
    tell: Callable[[str], None] = lambda _: None,
) -> PacePlan:
    """Try the best of each kind of pace against what was recommended for rounds."""
    objective = found.objective
    winner = next(one for one in found.raced if one.candidate.key == found.choice.key)
    curve = winner.run.curve
    if objective.target is not None:
        rounds = until = found.seconds
    else:
        until = min(float(objective.budget or math.inf), float(curve.seconds[-1]))
        rounds = curve.loss_at(until)
    best: dict[str, Paced] = {}
    for one in _offered(found, laboratory, until):
        if one.kind not in best or one.predicted < best[one.kind].predicted:
            best[one.kind] = one
    tried = []
    for one in best.values():
        tell(f"pace: {one}")
        try:
            own = _trained(one, laboratory, objective, until)
        except DivergedError:
            tried.append(replace(one, measured=math.inf))
            continue
        measured = own.loss_at(until)
        if objective.target is not None:
            measured = own.seconds_to(objective.target)
        tried.append(replace(one, measured=measured))
    return PacePlan(rounds, until, tuple(tried))


def _offered(
    found: Recommendation, laboratory: TrainingLaboratory, until: float
) -> Iterator[Paced]:
    """All paces that stand to choice, predicted; not what refuses what the run has set."""
    choice, averager = found.choice, found.choice.averager
    algorithm = _algorithm(laboratory, choice, Deadline(seconds=1e9))
    for seconds, without in _in_time(algorithm):
        pace = Deadline(seconds)
        cost = _algorithm(laboratory, choice, pace).round_cost().total
        rate = choice.tau1 * choice.tau2 / cost
        own = _predicted(found, pace, choice, rate, (seconds,), until)
        yield replace(own, without=without)
    methods = Methods(up=choice.methods.up, down=choice.methods.down)
    for tau1 in sorted({one.tau1 for one in found.ranking}):
        by_turns = Candidate(tau1, 1, choice.alpha, averager, choice.cost, methods)
        for compensation in (1.0, 0.0):
            pace_ = Asynchronous(compensation=compensation, psi="rounds")
            try:
                algorithm = _algorithm(laboratory, by_turns, pace_)
            except InputError:  # a server rule, say: that needs rounds
                return
            rate = counted_rate(pace_, algorithm)
            deadlines = tuple(times_of(pace_, algorithm).deadline.tolist())
            yield _predicted(found, pace_, by_turns, rate, deadlines, until)


def _in_time(algorithm: Algorithm) -> list[tuple[float, int]]:
    """Lengths of a period in which a share of the clients is done, and some of every cluster; and
    how many are not.
    """
    uplink, members = algorithm.uplink, algorithm.network.clusters.members
    needed = algorithm.schedule.tau1 * uplink.latencies.t_cmp
    needed = needed + uplink.seconds(np.ones(len(needed), dtype=bool))
    least = max(float(needed[list(own)].min()) for own in members)
    asked = {max(float(np.quantile(needed, share)), least) for share in IN_TIME}
    late = {seconds: int((needed > seconds * (1 + 1e-9)).sum()) for seconds in asked}
    return sorted((seconds, many) for seconds, many in late.items() if many)


def counted_rate(pace: Asynchronous, algorithm: Algorithm) -> float:
    """Iterations a second that count, by the pace's own timeline."""
    agenda = pace.agenda(algorithm)
    while agenda.turns.min() < TURNS:
        _, agenda = agenda.window(ENOUGH, ENOUGH, math.inf)
    rate = times_of(pace, algorithm).rate
    scale = (rate.min() / rate) ** pace.compensation
    made = agenda.made / agenda.seconds
    return float(algorithm.network.shares.cluster @ (scale * made))


def _predicted(
    found: Recommendation,
    pace: Pace,
    one: Candidate,
    rate: float,
    deadlines: tuple[float, ...],
    until: float,
) -> Paced:
    """By the iterations that rounds would need, at this many a second."""
    predictor: Predictor = found.predictor
    target = found.objective.target
    losses, needed = predictor.needed([one], beyond=target is None)
    if target is not None:
        score = iterations_to(target, needed[0], losses) / rate
    else:
        score = float(np.interp(rate * until, *reached(needed[0], losses)))
    return Paced(pace, one, rate, deadlines, score)


def _algorithm(laboratory: TrainingLaboratory, one: Candidate, pace: Pace) -> Algorithm:
    simulation = laboratory.simulation
    update = Paced(pace, one, math.nan, (), math.nan).settings
    own = simulation.settings.model_copy(update=update)
    parameters = simulation.problem.layout.parameters
    return own.algorithm(simulation.network, simulation.profile, parameters)


def _trained(
    one: Paced, laboratory: TrainingLaboratory, objective: Objective, until: float
) -> LossCurve:
    """Its run until that second, or to the target."""
    simulation = laboratory.simulation.changed(**one.settings, until=until)
    key = "test_accuracy" if objective.accuracy else "train_loss"

    def loss(row: Row) -> float:
        return 1 - row[key] if objective.accuracy else row[key]

    def done(rows: list[Row]) -> bool:
        return objective.target is not None and loss(rows[-1]) <= objective.target

    choice = simulation.engine(laboratory.engine_name)
    try:
        outcome = simulation.run(
            choice.engine,
            steps=ENOUGH,
            evaluation=laboratory.evaluation(one.candidate),
            on_row=done,
        )
    finally:
        choice.engine.close()
    return LossCurve(
        np.array([int(row["iteration"]) for row in outcome.rows]),
        np.array([row["seconds"] for row in outcome.rows]),
        np.array([loss(row) for row in outcome.rows]),
    )
