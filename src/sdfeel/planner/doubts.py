"""What makes the evidence for a plan thin."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sdfeel.planner.candidates import Candidate
from sdfeel.planner.prediction import Predictor
from sdfeel.planner.race import Entrant, Objective, outlook

__all__ = ["doubts"]


def doubts(
    winner: Entrant,
    raced: Sequence[Entrant],
    chosen: Sequence[Candidate],
    predictor: Predictor,
    objective: Objective,
) -> Iterable[str]:
    """What makes the evidence thin."""
    scores = {id(one): outlook(one, predictor, objective) for one in raced}
    best = scores[id(winner)]
    close = [one for one in raced if one is not winner and scores[id(one)] - best < 0.05 * best]
    if close:
        yield (
            f"close race: {'; '.join(str(one.candidate) for one in close)} came within 5 %; "
            "one seed cannot tell them apart"
        )
    if predictor.error > 0.25:
        yield (
            f"the prediction fits the runs to {predictor.error:.0%} only: trust the races, "
            "not the ranking of what was not raced"
        )
    for name in ("tau1", "tau2"):
        values = {getattr(one, name) for one in chosen}
        if len(values) > 1 and getattr(winner.candidate, name) == max(values):
            yield f"{name} = {max(values)} is the largest of the grid: a larger one may be better"
    period = winner.candidate.tau1 * winner.candidate.tau2
    if objective.target is not None and period > winner.run.curve.iterations_to(objective.target):
        yield (
            "the target was reached by the mean of all models before servers exchanged any: "
            "no server holds that mean until they do"
        )
    lasted = float(winner.run.curve.seconds[-1])
    if objective.target is None and lasted < 0.9 * float(objective.budget or 0.0):
        yield (
            f"the races lasted for {lasted:.5g} of {objective.budget:.5g} s: what follows is "
            "predicted; allow them more iterations to see it"
        )
    losses, _ = predictor.needed([winner.candidate])
    if objective.target is None and winner.run.curve.best < losses[-1]:
        yield "the budget reaches beyond the pilot: the ranking continues its curve as it fell last"
