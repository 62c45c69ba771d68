"""The paper's figures by one command: a comparison with claims, and verdicts on them.

settings/   section IV of the paper as TOML: `setting.toml` is IV-A and IV-B, then one per figure
spec        those files, read and checked
choice      what the planner recommends, for the figure that holds it against the paper
plan        from figures and a profile to runs; runs that figures share are one run
measures    a curve's level, noise, roughness: numbers from numbers
verdicts    what the paper says, held against the curves of every seed
clusters    the loss of a final model on each cluster's data, against the cluster's rate
document    verdicts in words, and all results as one Markdown file
report      figures, tables, verdicts and a page
"""

from sdfeel.experiments.reproduce.plan import Reproduction, carry_out, reproduction_of
from sdfeel.experiments.reproduce.report import write_reports
from sdfeel.experiments.reproduce.spec import TARGETS, read_target
from sdfeel.experiments.reproduce.verdicts import Verdict, judge

__all__ = [
    "TARGETS", "Reproduction", "Verdict", "carry_out", "judge", "read_target", "reproduction_of",
    "write_reports",
]  # fmt: skip
