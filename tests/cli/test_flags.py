"""One flag means one thing in every command; what flags were called before still works."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sdfeel.cli import app

# Values to choose from, where other commands take one.
CHOICES = {"--tau1", "--tau2", "--alpha"}
SMALL = ("model.name=logistic", "steps=2", "data.partition=iid", "averager=metropolis")
# Of every server in `bound`, of each in `clock`.
LISTS = {"--clients-per-server"}


def options() -> dict[str, dict[str, Any]]:
    """Visible options by flag, then by command."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)

    def collect(command: Any, name: str) -> None:
        for option in command.params if name else ():
            for flag in option.opts if not getattr(option, "hidden", False) else ():
                found[flag][name] = option
        for word, inner in getattr(command, "commands", {}).items():
            if not inner.hidden:
                collect(inner, f"{name} {word}".strip())

    collect(typer.main.get_command(app), "")
    return found


def test_a_flag_takes_the_same_kind_of_value_everywhere() -> None:
    for flag, commands in options().items():
        if flag.startswith("--") and flag not in CHOICES | LISTS:
            kinds = {(one.type.name, one.is_flag) for one in commands.values()}
            numbers = {("integer", False), ("float", False)}
            assert len(kinds) == 1 or kinds <= numbers, (flag, list(commands))


def test_flags_that_meant_several_things_mean_one() -> None:
    found = options()
    assert set(found["--state"]) == {"edge"}, "its own folder"
    assert set(found["--states"]) == {"status", "export", "rollback", "watch"}, "of all edges"
    assert set(found["--watch"]) == {"run", "launch"}, "the live page"
    assert set(found["--clients"]) == {"bound", "devices", "data show"}, "of all together"
    assert set(found["--profile"]) == {"clock", "watch"}, "latencies"
    assert "--sizes" not in found


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


BOUND = "bound --smoothness 1 --variance 1 --non-iid 1 --gap 1 --servers 3"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("clock --clients 7", "clock --clients-per-server 7"),
        (f"{BOUND} --sizes 1,2,3", f"{BOUND} --clients-per-server 1,2,3"),
        ("topology star --sizes 3,1,2", "topology star --samples-per-server 3,1,2"),
        ("devices show paper-h10 --clients 4", "devices paper-h10 --clients 4"),
    ],
)
def test_the_old_flag_says_the_same(old: str, new: str) -> None:
    before = run(*old.split())
    assert before == run(*new.split())
    without = new.rpartition(" --")[0].split()
    assert before != run(*without), "the flag counts"


def test_a_run_says_what_its_time_went_into_by_both_names(tmp_path: Any) -> None:
    tiny = ["run", "mnist-5k", *(w for s in SMALL for w in ("--set", s))]
    for flag in ("--timings", "--profile"):
        assert run(*tiny, "--out", str(tmp_path / flag), flag)["phases"]
