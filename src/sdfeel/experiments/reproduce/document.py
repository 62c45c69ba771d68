"""The results in words: every claim gets its sentence, all of them are one Markdown file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sdfeel.experiments.reproduce.plan import Reproduction
from sdfeel.experiments.reproduce.spec import PAPER, Claim, Target
from sdfeel.experiments.reproduce.verdicts import Verdict
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.tables import Row

BIAS = (
    "The final models on all training samples of each cluster. The last columns are the part of "
    "its loss that a cluster of twice the rate has more, beyond what it has with the model of the "
    "first row: below 0 a model is pulled to the data of fast clusters."
)
WORDS = {outcome: outcome.capitalize() for outcome in ("confirmed", "not confirmed", "open")}


@dataclass(frozen=True)
class FigureResult:
    """The results of a figure's runs.

    rows    how every curve ended
    biases  losses by cluster, by the curve that the others are compared with
    """

    target: Target
    verdicts: Sequence[Verdict]
    rows: Sequence[Row]
    biases: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def command(plan: Reproduction) -> str:
    """Return the command that gives this plan."""
    names = [target.name for target in plan.targets]
    collection = plan.collection
    everything = collection.targets
    words = ["sdfeel", collection.command, *(["all"] if names == [*everything] else names)]
    if plan.profile != "default":
        words.append(f"--{plan.profile}")
    usual = [(t.profile[plan.profile].seeds, plan.curves[t.name]) for t in plan.targets]
    if any(len(folders) != seeds for seeds, curves in usual for folders in curves.values()):
        words += ["--seeds", str(plan.seeds)]
    if collection is PAPER and plan.dataset != "cifar10":
        words += ["--dataset", plan.dataset]
    for setting in plan.settings:
        words += ["--set", setting]
    return shlex.join(words)


def verdict_rows(verdicts: Sequence[Verdict]) -> list[Row]:
    """Return verdicts as rows of a table for people."""
    return [
        {
            "figure": verdict.figure,
            "claim": verdict.claim.says,
            "reading": verdict.claim.reading or None,
            "verdict": verdict.verdict,
            "measured": _measured(verdict),
            "asked for": _asked(verdict.claim),
            "seeds": len(verdict.values),
            "note": verdict.note,
        }
        for verdict in verdicts
    ]


def title(plan: Reproduction) -> str:
    """What the page of all results is called."""
    on = f"reproduced on {plan.dataset}"
    return (
        f"The paper's figures, {on}" if plan.collection is PAPER else "Others' experiments, redone"
    )


def notes(target: Target, plan: Reproduction) -> list[str]:
    """Return what the settings say of a figure, and what the planner chose for it."""
    chosen = plan.chosen.get(target.name, {})
    source = [f"Published in {target.source}."] if target.source else []
    return [
        *source,
        *target.notes,
        *(f"{label}: {choice.words()}" for label, choice in chosen.items()),
    ]


def sentence(verdict: Verdict) -> str:
    """Say in Markdown what became of a claim."""
    claim = verdict.claim
    reading = f" *[{claim.reading}]*" if claim.reading else ""
    paper = f'The paper: "{claim.paper}".' if claim.paper else "(Our statement.)"
    paper = paper if claim.published is None else ""
    return (
        f"- **{WORDS[verdict.verdict]}**{reading}: {claim.says}. Measured {_measured(verdict)}, "
        f"asked {_asked(claim)}; {verdict.note}. {paper}".rstrip()
    )


def results_document(
    plan: Reproduction, results: Mapping[str, FigureResult], about: Mapping[str, Any]
) -> str:
    """Write all figures with their verdicts and tables.

    results  by the name of the figure; those that are not finished are not there
    about    on what it was computed, and how long it took
    """
    verdicts = [verdict for result in results.values() for verdict in result.verdicts]
    outcomes: list[str] = [verdict.verdict for verdict in verdicts]
    counts = ", ".join(f"{outcomes.count(kind)} {word.lower()}" for kind, word in WORDS.items())
    lines = [
        f"# {title(plan)}",
        f"`{command(plan)}`",
        "\n".join(f"- {key}: {value}" for key, value in about.items()),
        f"{len(verdicts)} statements: {counts}.",
    ]
    for target in plan.targets:
        lines.append(f"## {target.title}")
        if target.name not in results:
            lines.append("Not finished.")
        else:
            lines += _section(results[target.name], plan)
    return "\n\n".join(lines) + "\n"


def _section(result: FigureResult, plan: Reproduction) -> list[str]:
    target = result.target
    done = min((len(verdict.values) for verdict in result.verdicts), default=plan.seeds)
    lines = [f"Not finished: {done} of {plan.seeds} seeds."] if done < plan.seeds else []
    lines += notes(target, plan)
    lines += [f"![{d.title}]({target.name}/{d.name}.png)" for d in target.drawing]
    lines.append("\n".join(sentence(verdict) for verdict in result.verdicts))
    lines += [markdown_table(result.rows).rstrip()] if result.rows else []
    for rows in result.biases.values():
        lines += [BIAS, markdown_table(rows).rstrip()]
    return lines


def _measured(verdict: Verdict) -> str:
    """Say the value with its spread over seeds."""
    if verdict.value is None:
        return "–"
    digits = 3 if verdict.claim.published is None else 5
    text = f"{verdict.value:.{digits}g}"
    if verdict.spread is not None:
        text += f" ({verdict.spread[0]:.3g} to {verdict.spread[1]:.3g})"
    return f"{text} {verdict.unit}"


def _asked(claim: Claim) -> str:
    """Say what the value had to be."""
    if claim.tolerance is not None:
        return f"{claim.published:g} ± {claim.tolerance:g}"
    is_bound = claim.kind in ("within", "keeps", "most", "lasts")
    return f"{'≤' if is_bound else '>'} {claim.threshold:g}"
