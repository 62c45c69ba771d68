"""A plan in numbers, as `sdfeel plan --json` prints them, and in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sdfeel.algorithm.methods.optimizers import OPTIMIZERS
from sdfeel.algorithm.paces import PACES
from sdfeel.planner.candidate import Candidate, name_in
from sdfeel.planner.graphs import WORTH, on_other_graphs
from sdfeel.planner.price import with_everyone
from sdfeel.planner.race import Objective, scale_of
from sdfeel.tables import to_table

if TYPE_CHECKING:
    from sdfeel.planner.plan import Plan

__all__ = ["reasons_of", "report_of"]

SHOWN = 10  # rows of the ranking
CLOSE = 1.05  # a race within this factor is close

Report = Mapping[str, Any]


def report_of(plan: Plan, tried: Sequence[Plan], searched: Sequence[Plan]) -> Report:
    """All that is known of a plan, for JSON; None is never, or what there is not.

    Args:
        plan: the one whose choice is recommended.
        tried: those of all optimizers and rates; searched: of which a choice was looked for.
    """
    choice, objective, predictor = plan.choice, plan.objective, plan.predictor
    seconds, loss = objective.headline(choice)
    numbers = {name: value for name, value in vars(predictor.numbers).items() if name != "error"}
    has_trials = plan.choices["optimizer"] or plan.choices["lr"]
    report = {
        **choice.names,
        "optimizer": name_in(OPTIMIZERS, choice.optimizer),
        "lr": choice.eta,
        "trials": [_trial(each, each in searched) for each in tried if has_trials],
        "brought": [*_tried(plan, tried), *_predicted(plan)],
        "seconds_to_target": seconds,
        **({"accuracy_reached": 1 - loss} if objective.accuracy else {"loss_reached": loss}),
        "bottleneck": choice.price.bottleneck,
        "round": dict(choice.price.parts),
        "shares": choice.price.shares,
        "evidence": {
            "pilot_iterations": int(plan.pilot.curve.iterations[-1]),
            "probes": [str(row) for row in plan.probes],
            "raced": [str(row) for row in plan.raced],
            "iterations_spent": sum(each.iterations for each in tried),
            "fit_error": predictor.numbers.error,
            **numbers,
            "kappa_inside": [point.inside for point in predictor.path.points],
            "kappa_between": [point.between for point in predictor.path.points],
            "thin": [],
        },
        "ranking": _ranking(plan),
        "other_topologies": on_other_graphs(plan),
    }
    if plan.others:
        report["pace"] = _paces(plan)
    report["evidence"]["thin"] = list(_doubts(plan, report))
    return dict(_finite(report))


def _finite(content: Any) -> Any:
    """JSON has no infinity: None."""
    if isinstance(content, Mapping):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not np.isfinite(content) else content


def _ranking(plan: Plan) -> list[dict[str, Any]]:
    """The best by prediction, with what the races measured.

    predicted_loss, raced_loss, raced_until  for a budget: at its end, and at the race's
    """
    table, level = [], plan.level
    for row in plan.ranking[:SHOWN]:
        pace = {"pace": row.pace.kind} if plan.others else {}
        columns = {
            "predicted_iterations": row.predicted.iterations_to(level),
            "predicted_seconds": row.predicted.seconds_to(level),
            "raced_seconds": row.curve.seconds_to(level),
            "dropped_at": row.dropped_at,
        }
        if plan.objective.target is None:
            columns["predicted_loss"] = plan.objective.predicted(row)
            columns["raced_loss"] = row.curve.best if row.was_trained else None
            columns["raced_until"] = float(row.curve.seconds[-1]) if row.was_trained else None
        table.append(row.names | pace | columns)
    return table


def _trial(plan: Plan, is_searched: bool) -> dict[str, Any]:
    return {
        "optimizer": name_in(OPTIMIZERS, plan.pilot.optimizer),
        "lr": plan.pilot.eta,
        "seconds": [seconds for seconds, _ in plan.rungs],
        "losses": [loss for _, loss in plan.rungs],
        "planned": is_searched,
    }


# What each method brought: `what` is the key that sets it, with its value. `with_it` is what is
# predicted for the recommended candidate, `without` for the same one without it, and `best_without`
# for the `best` of all without it: seconds to the target, or loss; None is never. Optimizers and
# rates are not predicted: `after` so many seconds of trial they had these losses, and without is
# the best other optimizer with the same rate, or rate with the same optimizer.


def _tried(plan: Plan, tried: Sequence[Plan]) -> Iterator[dict[str, Any]]:
    ranked = sorted((each for each in tried if each.rungs), key=lambda each: each.rungs[0][1])
    names = {id(each): (type(each.pilot.optimizer), each.pilot.eta) for each in ranked}
    for place, what in enumerate(("optimizer", "lr") if plan.rungs else ()):
        value, other = names[id(plan)][place], names[id(plan)][1 - place]
        rivals = [each for each in ranked if names[id(each)][place] != value]
        same = [each for each in rivals if names[id(each)][1 - place] == other]
        if rivals:
            yield {
                "what": what,
                "value": plan.pilot.stepping.split(", rate ")[place],
                "with_it": plan.rungs[0][1],
                "without": same[0].rungs[0][1] if same else None,
                "best_without": rivals[0].rungs[0][1],
                "best": rivals[0].pilot.stepping,
                "after": plan.rungs[0][0],
            }


def _predicted(plan: Plan) -> Iterator[dict[str, Any]]:
    """Of methods that the best in rounds and the choice have."""
    scale = scale_of(plan.best, plan.objective)

    def score(row: Candidate | None) -> float | None:
        return None if row is None else plan.objective.predicted(row, scale=scale)

    for what, value in plan.best.names.items():
        nothing = "none" if what == "correction" else "float32"
        is_method = what == "correction" or what.startswith("codecs.")
        if is_method and value != nothing and plan.choice.names[what] == value:
            wanted = plan.best.names | {what: nothing}
            others = [row for row in plan.grid if row.names[what] == nothing]
            best = min(others, key=plan.objective.predicted, default=None)
            yield {
                "what": what,
                "value": value,
                "with_it": score(plan.best),
                "without": score(next((row for row in others if row.names == wanted), None)),
                "best_without": score(best),
                "best": None if best is None else str(best),
                "after": None,
            }


def _paces(plan: Plan) -> dict[str, Any]:
    """Other paces beside rounds, as they were measured; choice: None where servers wait."""
    tried = {id(row): _pace(plan, row) for row in plan.others if row.was_trained}
    return {
        "name": to_table(plan.choice.pace, PACES)["name"],
        "rounds": plan.measured(plan.best),
        "until": plan.until,
        "choice": tried.get(id(plan.choice)),
        "tried": list(tried.values()),
    }


def _pace(plan: Plan, row: Candidate) -> dict[str, Any]:
    algorithm = with_everyone(plan.place.algorithm(**row.settings))
    present: dict[int, int] = {}  # by group, in its first period
    for event in algorithm.events():
        for group in event.groups:
            present.setdefault(group.number, len(group.clients))
        if len(present) == algorithm.network.servers:
            break
    names = {name: value for name, value in row.names.items() if name not in ("tau1", "tau2")}
    return {
        "label": str(row),
        "pace": to_table(row.pace, PACES),
        "schedule": {"tau1": row.tau1, "tau2": row.tau2, "alpha": names.pop("alpha")},
        **names,
        "deadlines": row.pace.deadlines(algorithm),
        "iterations_a_second": row.price.gain / row.price.per_iteration,
        "clients_left_out": algorithm.network.clients - sum(present.values()),
        "predicted": plan.objective.predicted(row, until=plan.until),
        "measured": plan.measured(row),
        "trained_for": float(row.curve.seconds[-1]),
    }


def _doubts(plan: Plan, report: Report) -> Iterator[str]:
    """What makes the evidence thin."""
    choice, objective, predictor = plan.choice, plan.objective, plan.predictor
    limit = CLOSE * plan.objective.outlook(plan.best)
    rivals = [row for row in plan.in_rounds if row is not plan.best]
    close = [str(row) for row in rivals if plan.objective.outlook(row) < limit]
    if close:
        yield (
            f"close race: {'; '.join(close)} came within 5 % of {plan.best}; one seed cannot "
            "tell them apart"
        )
    if predictor.numbers.error > 0.25:
        yield (
            f"the prediction fits the runs to {predictor.numbers.error:.0%} only: trust the races, "
            "not the ranking of what was not raced"
        )
    for name in ("tau1", "tau2"):
        values = {row.names[name] for row in plan.grid}
        if len(values) > 1 and choice.names[name] == max(values):
            yield f"{name} = {max(values)} is the largest of the grid: a larger one may be better"
    if objective.target is not None:
        if choice.tau1 * choice.tau2 > choice.curve.iterations_to(objective.target):
            yield (
                "the target was reached by the mean of all models before servers exchanged any: "
                "no server holds that mean until they do"
            )
    else:
        yield from _doubts_of_budget(plan)
    pace = report.get("pace") or {}
    if pace.get("choice") and pace["choice"]["clients_left_out"]:
        yield (
            f"{pace['choice']['clients_left_out']} clients are never in time, and their data never "
            "counts: a longer run, or a lower target, may want it"
        )


def _doubts_of_budget(plan: Plan) -> Iterator[str]:
    best, limit = plan.best, plan.objective.limit
    lasted = float(best.curve.seconds[-1])
    if lasted < 0.9 * limit:
        what = "races and paces" if plan.others else "races"
        yield (
            f"the {what} lasted for {lasted:.5g} of {limit:.5g} s: what follows is predicted; "
            "allow them more iterations to see it"
        )
    if best.curve.best < plan.predictor.path.curve.best:
        yield "the budget reaches beyond the pilot: the ranking continues its curve as it fell last"


def _as_predicted(plan: Plan) -> str:
    """Say so where the headline lies beyond what was trained."""
    lasted = float(plan.choice.curve.seconds[-1]) if plan.choice.was_trained else 0.0
    return "" if lasted >= 0.9 * plan.seconds else f" (predicted: trained for {lasted:.5g} s)"


def reasons_of(plan: Plan) -> tuple[str, ...]:
    """What was chosen, what it brings, and what the evidence is, in sentences."""
    choice, objective, report = plan.choice, plan.objective, plan.report
    evidence, stepping = report["evidence"], f"{choice.stepping}: " if report["trials"] else ""
    reached = objective.shown(objective.target or plan.loss)
    shares = ", ".join(f"{name} {share:.0%}" for name, share in report["shares"].items())
    topologies = {k: v for k, v in report["other_topologies"].items() if v < WORTH}
    return (
        f"{stepping}{choice}: {reached} after {plan.seconds:.5g} simulated seconds"
        f"{_as_predicted(plan)}",
        f"a round: {shares}; the bottleneck is {report['bottleneck']}",
        *(_gain(row, objective) for row in report["brought"]),
        *_on_paces(plan, report.get("pace")),
        f"evidence: a pilot of {evidence['pilot_iterations']} iterations, "
        f"{len(evidence['probes'])} probes and {len(evidence['raced'])} raced; the prediction "
        f"fits them to {evidence['fit_error']:.0%}; "
        f"{evidence['iterations_spent']:,} iterations simulated",
        *(
            f"another topology: {name} would need {factor:.0%} of it (predicted)"
            for name, factor in topologies.items()
        ),
        *(f"thin evidence: {doubt}" for doubt in evidence["thin"]),
    )


def _gain(row: Report, objective: Objective) -> str:
    """What a method brought, in one line."""

    def shown(score: float | None) -> str:
        if score is None:
            return "never" if row["after"] is None else "diverged"
        is_timed = objective.target is not None and row["after"] is None
        return f"{score:.4g} s" if is_timed else objective.shown(score)

    how = "predicted" if row["after"] is None else f"tried for {row['after']:.3g} s"
    line = f"{row['what']} = {row['value']}: {shown(row['with_it'])}"
    if row["best"] is None:
        return f"{line}; there was nothing else to choose from ({how})"
    line += "" if row["without"] is None else f", without it {shown(row['without'])}"
    return f"{line}; the best without it: {row['best']}, {shown(row['best_without'])} ({how})"


def _on_paces(plan: Plan, pace: Report | None) -> Iterator[str]:
    """What was tried beside rounds."""
    if pace is None:
        return
    is_timed = plan.objective.target is not None
    after = "" if is_timed else f" after {pace['until']:.4g} s"

    def shown(score: float | None, trained_for: float = np.inf) -> str:
        if score is None:
            return f"not within {trained_for:.4g} s" if is_timed else "diverged"
        return f"{score:.4g} s" if is_timed else plan.objective.shown(score)

    name = pace["choice"]["label"] if pace["choice"] else "synchronous, nothing else was better"
    yield f"pace: {name}; in rounds {shown(pace['rounds'])}{after}"
    for row in pace["tried"]:
        periods = f"{min(row['deadlines']):.3g}"
        if len(row["deadlines"]) > 1:
            periods += f" to {max(row['deadlines']):.3g}"
        measured = f"{shown(row['measured'], row['trained_for'])}{after}"
        predicted = "never" if row["predicted"] is None else shown(row["predicted"])
        yield f"tried: {row['label']}: {measured} (predicted {predicted}), periods of {periods} s"
