"""The results as one Markdown file: every claim of the paper gets its sentence."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sdfeel.experiments.reproduce.plan import Reproduction
from sdfeel.experiments.reproduce.spec import TARGETS, Target
from sdfeel.experiments.reproduce.verdicts import Verdict
from sdfeel.reports.rendering import markdown_table
from sdfeel.reports.tables import Row

__all__ = ["asked", "command", "measured", "notes", "results_document"]

BIAS = (
    "The final models on all training samples of each cluster. The last columns are the part of "
    "its loss that a cluster of twice the rate has more, beyond what it has with the model of the "
    "first row: below 0 a model is pulled to the data of fast clusters."
)
WORDS = {"pass": "Confirmed", "fail": "Not confirmed", "inconclusive": "Open"}


def command(plan: Reproduction) -> str:
    """The command that gives this plan."""
    names = [target.name for target in plan.targets]
    words = ["sdfeel", "reproduce", *(["all"] if names == list(TARGETS) else names)]
    if plan.profile != "default":
        words.append(f"--{plan.profile}")
    if any(target.profile[plan.profile].seeds != plan.seeds for target in plan.targets):
        words += ["--seeds", str(plan.seeds)]
    if plan.dataset != "cifar10":
        words += ["--dataset", plan.dataset]
    for setting in plan.settings:
        words += ["--set", setting]
    return shlex.join(words)


def measured(verdict: Verdict) -> str:
    """The value with its spread over seeds, in words."""
    if verdict.value is None:
        return "–"
    text = f"{verdict.value:.3g}"
    if verdict.spread is not None:
        text += f" ({verdict.spread[0]:.3g} to {verdict.spread[1]:.3g})"
    return f"{text} {verdict.unit}"


def asked(verdict: Verdict) -> str:
    """What the value had to be."""
    below = verdict.kind in ("within", "keeps", "most")
    return f"{'≤' if below else '>'} {verdict.threshold:g}"


def results_document(
    plan: Reproduction,
    verdicts: Sequence[Verdict],
    tables: Mapping[str, Sequence[Row]],
    biases: Mapping[str, Sequence[Sequence[Row]]],
    *,
    about: Mapping[str, Any],
) -> str:
    """All figures with their verdicts and tables.

    tables  by the name of the figure: how its curves ended
    biases  by the name of the figure: losses by cluster
    about   on what it was computed, and how long it took
    """
    lines = [
        f"# Results on {plan.dataset}",
        "",
        f"`{command(plan)}`",
        "",
        *(f"- {key}: {value}" for key, value in about.items()),
        "",
        _count(verdicts),
    ]
    for target in plan.targets:
        if target.name not in tables:
            lines += ["", f"## {target.title}", "", "Not finished."]
            continue
        mine = [verdict for verdict in verdicts if verdict.figure == target.name]
        lines += [
            "",
            *_section(target, mine, plan),
            "",
            markdown_table(tables[target.name]).rstrip(),
        ]
        for rows in biases.get(target.name, ()):
            lines += ["", BIAS, "", markdown_table(rows).rstrip()]
    return "\n".join(lines) + "\n"


def _count(verdicts: Sequence[Verdict]) -> str:
    counts = [
        f"{sum(verdict.verdict == kind for verdict in verdicts)} {word.lower()}"
        for kind, word in WORDS.items()
    ]
    return f"{len(verdicts)} statements: {', '.join(counts)}."


def notes(target: Target, plan: Reproduction) -> list[str]:
    """What the settings say of a figure, and what the planner chose for it."""
    chosen = plan.chosen.get(target.name, {})
    return [*target.notes, *(f"{label}: {one.words()}" for label, one in chosen.items())]


def _section(target: Target, verdicts: Sequence[Verdict], plan: Reproduction) -> list[str]:
    lines = [f"## {target.title}"]
    done = min((verdict.seeds for verdict in verdicts), default=plan.seeds)
    if done < plan.seeds:
        lines += ["", f"Not finished: {done} of {plan.seeds} seeds."]
    for note in notes(target, plan):
        lines += ["", note]
    for drawing in target.drawing:
        lines += ["", f"![{drawing.title}]({target.name}/{drawing.name}.png)"]
    lines.append("")
    return lines + [_sentence(verdict) for verdict in verdicts]


def _sentence(verdict: Verdict) -> str:
    reading = f" *[{verdict.reading}]*" if verdict.reading else ""
    said = f' The paper: "{verdict.paper}".' if verdict.paper else " (Our statement.)"
    return (
        f"- **{WORDS[verdict.verdict]}**{reading}: {verdict.claim}. Measured {measured(verdict)}, "
        f"asked {asked(verdict)}; {verdict.note}.{said}"
    )
