"""Every command of docs/flower.md runs, with fewer steps than there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.experiments.run import run

ROOT = Path(__file__).parent.parent.parent
COMMANDS = re.findall(r"^    (sdfeel run app.toml.*)$", (ROOT / "docs/flower.md").read_text(), re.M)


def test_every_question_has_its_command() -> None:
    assert len(COMMANDS) == 5


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_runs(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples/flower")
    words = shlex.split(command)[3:]
    assert words[::2] == ["--set"] * (len(words) // 2)
    table = with_settings(read_table("app.toml"), [*words[1::2], "steps=8"])
    result = run(run_config(table))
    assert result.iterations == 8
    assert result.seconds > 0.1
    assert 0 < result.history["test_accuracy"].iloc[-1] <= 1
