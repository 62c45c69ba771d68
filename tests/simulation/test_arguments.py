"""Settings as arguments: one list for pydantic, for type checkers and for people."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sdfeel
from sdfeel.simulation.arguments import RunSettings
from sdfeel.simulation.fields import plain
from sdfeel.simulation.settings import Settings


def test_the_keyword_arguments_are_the_settings() -> None:
    assert list(RunSettings.__annotations__) == list(Settings.model_fields)


def type_of(name: str) -> str:
    """Its types without those of a table's values, and without the table that a file has."""
    written = RunSettings.__annotations__[name].__forward_arg__
    while "[" in written:  # what is inside of brackets, from the inside
        written = re.sub(r"\[[^\[\]]*\]", "", written)
    return " | ".join(each for each in written.split(" | ") if each != "Table") or "Mapping"


def documented() -> str:
    """The part of `help(sdfeel.train)` that says what can be set."""
    lines: list[str] = []
    for name, field in Settings.model_fields.items():
        default = plain(name, field.default)
        if isinstance(default, dict):
            default = default.get("name", default)
        text = repr(default)
        if isinstance(default, dict) and default:  # the documentation's parser ends at a colon
            text = f"dict({', '.join(f'{key}={value!r}' for key, value in default.items())})"
        words = f"{name} ({type_of(name)} = {text}): {field.description}."
        lines += textwrap.wrap(
            words, 100, initial_indent=" " * 8, subsequent_indent=" " * 12,
            break_on_hyphens=False, break_long_words=False,
        )  # fmt: skip
    return "\n".join(lines)


def test_help_says_all_that_can_be_set_with_its_default() -> None:
    """Written down in the source: an editor shows it, and nothing is rewritten at import."""
    assert documented() in str(sdfeel.train.__doc__), documented()


WRONG = {
    'steps="ten"': "ten",
    "leraning_rate=3": "leraning_rate",
    "lr=[1]": "lr",
    'schedule="often"': "schedule",
    "seed=1.5": "seed",
}
CALLS = ("train", "compare", "plan")


@pytest.mark.slow
def test_a_type_checker_refuses_what_is_wrong(tmp_path: Path) -> None:
    """And takes what is right: names, objects and functions."""
    begin = (
        "import sdfeel, torch\nnetwork = sdfeel.Network.ring(3, 2)\nmodel = torch.nn.Linear(2, 2)\n"
    )
    right = tmp_path / "right.py"
    right.write_text(
        begin
        + 'sdfeel.train(model, [], network=network, steps=10, lr=0.1, scheme="fedavg")\n'
        + "sdfeel.compare(model, [], network=network, until=9.0, seeds=3, metrics={}, test=None)\n"
        + "sdfeel.train(model, [], network=network, until=9.0, lr=lambda k: 1 / k,\n"
        + "    optimizer=sdfeel.Momentum(0.9), schedule=sdfeel.Schedule(lambda n: 2, 1, 5),\n"
        + '    pace=sdfeel.Asynchronous(), codecs={"up": "int8"}, correction="two-level")\n'
    )
    for number, wrong in enumerate(WRONG):
        for name in CALLS:
            call = f"sdfeel.{name}(model, [], network=network, {wrong})\n"
            (tmp_path / f"{name}{number}.py").write_text(begin + call)
    mypy = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", f"{tmp_path}/cache"]
    done = subprocess.run([*mypy, str(tmp_path)], capture_output=True, text=True, check=False)
    refused = {
        Path(line.partition(":")[0]).name for line in done.stdout.splitlines() if "error:" in line
    }
    expected = {f"{name}{number}.py" for name in CALLS for number in range(len(WRONG))}
    assert refused == expected, done.stdout
