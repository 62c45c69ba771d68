"""Every command of docs/flower.md runs, with fewer steps than there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.experiments.run import run

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs/flower.md").read_text()
COMMANDS = re.findall(r"^    (sdfeel run app.toml.*)$", TEXT, re.M)
PROJECT = re.findall(r"^    (sdfeel run \..*)$", TEXT, re.M)


def test_every_question_has_its_command() -> None:
    assert len(COMMANDS) == 5
    assert len(PROJECT) == 3


@pytest.mark.parametrize("command", PROJECT)
def test_the_example_is_a_project(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples/flower")
    words = shlex.split(command)[3:]
    few = ["flower.run_config.num-server-rounds=2"]
    table = with_settings(read_table("."), [*words[1::2], *few])
    result = run(run_config(table))
    assert result.iterations == 40
    assert {"test_accuracy", "central_accuracy"} <= set(result.history.columns)


def test_the_python_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "examples/flower")
    monkeypatch.syspath_prepend(str(ROOT / "examples/flower"))
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    names: dict[str, object] = {}
    exec(block.replace("rounds=10", "rounds=1"), names)  # noqa: S102
    assert names["result"].iterations == 8  # type: ignore[attr-defined]


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
