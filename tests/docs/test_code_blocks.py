"""Code of the README and of all pages runs as it stands there."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path

import notebooks as runner  # docs/notebooks.py
import numpy as np
import pytest
import torch
import typer
from torch import nn

import sdfeel
from sdfeel.cli import app
from sdfeel.clock import load_profile, profile_of, profile_table
from sdfeel.experiments.config import merge, read_table, run_config, with_settings
from sdfeel.experiments.run import run, simulation_of
from sdfeel.simulation.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"
# Pages whose Python needs files and processes, and has tests of its own.
ELSEWHERE = {"deployment": "tests/deploy/test_docs.py", "flower": "tests/flower/test_docs.py"}


def blocks(path: Path, kind: str = "python") -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


WITH_PYTHON = [path for path in (README, *sorted(DOCS.glob("*.md"))) if blocks(path)]
PAGES = [path for path in WITH_PYTHON if path.stem not in ELSEWHERE]


def brought() -> dict[str, object]:
    """What a reader has already: a model, the data of each client and a network."""
    rng = np.random.default_rng(0)

    def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
        targets = rng.integers(0, 3, count)
        return (rng.normal(size=(count, 3)) + 4 * np.eye(3)[targets]).astype(np.float32), targets

    torch.manual_seed(0)
    return {
        "sdfeel": sdfeel,
        "model": nn.Linear(3, 3),
        "client_datasets": [samples(30) for _ in range(5)],
        "test": samples(50),
        "network": sdfeel.Network(clusters=[[0, 1, 2], [3, 4]], graph=[(0, 1)]),
    }


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And warns of nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDFEEL_CC", "no-such-compiler")  # many small models: compiling takes longer
    names = brought() | {"__name__": path.stem}
    for number, block in enumerate(blocks(path), 1):
        code = compile(block, f"{path.name}, block {number}", "exec", dont_inherit=True)
        exec(code, names)  # noqa: S102 - ours


def test_the_readme_shows_what_its_code_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for real seconds and the last digits, which are the machine's."""
    monkeypatch.chdir(tmp_path)
    (code,), (shown,) = blocks(README), blocks(README, "text")
    exec(compile(code, "README", "exec", dont_inherit=True), {})  # noqa: S102 - ours
    printed = capsys.readouterr().out
    number = re.compile(r"\d+\.?\d*")
    words = [number.sub("0", text.split(" (")[0]).split() for text in (shown, printed)]
    assert words[0] == words[1]
    stated, measured = (
        [float(figure) for figure in number.findall(text.split(" (")[0])]
        for text in (shown, printed)
    )
    assert measured == pytest.approx(stated, rel=0.02)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_a_page_whose_python_is_tested_elsewhere_has_that_test(page: str, docs: Path) -> None:
    assert blocks(docs / f"{page}.md")
    assert (docs.parent / ELSEWHERE[page]).is_file()


INLINE = re.compile(r"`(sdfeel\.(?:train|compare|plan)\([^`]*\))`")
CALLS = sorted(
    {call for path in WITH_PYTHON for call in INLINE.findall(path.read_text(encoding="utf-8"))}
)


@pytest.mark.parametrize("call", CALLS)
def test_a_call_inside_a_sentence_could_be_made(call: str) -> None:
    """Its arguments are known, and none that is needed is missing unless `...` stands for it."""
    body = ast.parse(call.replace(", ...)", ", rest=...)"), mode="eval").body
    assert isinstance(body, ast.Call)
    assert isinstance(body.func, ast.Attribute)
    given = {str(keyword.arg) for keyword in body.keywords}
    known = set(inspect.signature(getattr(sdfeel, body.func.attr)).parameters)
    assert given <= known | set(Settings.model_fields) | {"rest"}
    is_part = "rest" in given or any(ast.unparse(value) == "..." for value in body.args)
    assert is_part or body.func.attr == "plan" or given & {"steps", "until"}


def test_settings_of_a_page_are_settings(docs: Path) -> None:
    tables = blocks(docs / "simulate.md", "toml")
    assert tables
    for text in tables:
        table = tomllib.loads(text)
        for variant in table.pop("variant", [{"set": {}}]):
            run_config(merge(table, variant["set"]))


def test_devices_of_a_page_are_those_of_a_profile(docs: Path, tmp_path: Path) -> None:
    (text,) = blocks(docs / "asynchrony.md", "toml")
    (tmp_path / "devices.csv").write_text("client,from,to\n0,0.0,60.0\n")
    profile = profile_of(
        {**profile_table(load_profile("paper")), **tomllib.loads(text)}, folder=tmp_path
    )
    assert profile.devices is not None
    assert profile.availability is not None


def test_data_and_model_from_a_file_as_the_page_has_them(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = docs / "simulate.md"
    (code,) = [text for text in blocks(page) if "def load(path)" in text]
    (table,) = [text for text in blocks(page, "toml") if "\n[data.arguments]\n" in text]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_file.py").write_text(code)
    inputs, targets = np.zeros((300, 6), np.float32), np.arange(300) % 3
    test = {"test_inputs": inputs, "test_targets": targets}
    np.savez("readings.npz", inputs=inputs, targets=targets, **test)
    simulation = simulation_of(run_config(tomllib.loads(table)))
    assert simulation.problem.layout.parameters == 6 * 64 + 64 + 64 * 3 + 3


def test_the_command_that_stands_for_hierfl_runs(docs: Path) -> None:
    text = (docs / "own_loop.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    sdfeel run mnist-5k (.*)$", text, re.MULTILINE)
    words = shlex.split(command)
    assert words[::2] == ["--set"] * (len(words) // 2)
    few = ["steps=10", "engine=loop", "evaluation.servers=false", "evaluation.every=10"]
    few += ["evaluation.train_samples=50", "evaluation.test_samples=50"]
    settings = [*words[1::2], *few]
    result = run(run_config(with_settings(read_table("mnist-5k"), settings)))
    assert (result.scheme, result.iterations) == ("hierfavg", 10)


def notebook(path: Path, *cells: str) -> Path:
    listed = [{"cell_type": "code", "source": [cell], "outputs": []} for cell in cells]
    path.write_text(json.dumps({"cells": listed}))
    return path


def test_a_notebook_that_fails_is_named_with_its_cell(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make notebooks` is what CI runs them with: it must be able to fail."""
    right = notebook(tmp_path / "right.ipynb", "a = 20\na + 1", "print('two'); a + 2")
    wrong = notebook(tmp_path / "wrong.ipynb", "a = 1", "print('said'); a / 0")
    assert runner.main([str(right), "--write"]) == 0
    said = [cell["outputs"][0]["text"] for cell in json.loads(right.read_text())["cells"]]
    assert said == [["21\n"], ["two\n", "22\n"]]
    assert runner.main([str(wrong)]) == 1
    told = capfd.readouterr()
    assert "wrong.ipynb, cell 2" in told.err
    assert "ZeroDivisionError" in told.err
    assert "said" in told.out
    assert "wrong.ipynb FAILED" in told.out


def test_every_notebook_is_whole_and_on_the_site(docs: Path) -> None:
    pytest.importorskip("myst_parser", reason="the documentation's tools come with sdfeel[dev]")
    import notebook_pages as pages  # docs/extensions

    contents = (docs / "conf.py").read_text()
    found = sorted((docs / "notebooks").glob("*.ipynb"))
    assert len(found) == 3
    for path in found:
        assert f'"notebooks/{path.stem}"' in contents
        text = pages.to_markdown(path.read_text(encoding="utf-8"))
        assert text.startswith("# ")
        assert "```python\n" in text
        assert "```text\n" in text  # what the cells printed is kept


def test_a_notebook_keeps_the_figure_that_a_cell_ends_with(tmp_path: Path) -> None:
    drawn = (
        "from sdfeel.reports import plot_curves\nimport pandas as pd\n"
        "plot_curves({'a': pd.DataFrame({'seconds': [0, 1], 'train_loss': [1, 0]})})"
    )
    path = notebook(tmp_path / "draws.ipynb", drawn)
    assert runner.main([str(path), "--write"]) == 0
    (output,) = json.loads(path.read_text())["cells"][0]["outputs"]
    assert output["data"]["image/png"].startswith("iVBOR")  # PNG in base64


# Commands. They are not run here: their tests run them. What they are called with must exist.

LINE = re.compile(r"^ {4}(?:OMP_\S+ )?((?:sdfeel|make|python) .*)$", re.MULTILINE)
FENCED = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
# Kinds of blocks, and where what they hold is tested.
KINDS = {
    "python": "test_the_python_of_a_page_runs_from_top_to_bottom",
    "pycon": "tests/docs/test_references.py",
    "toml": "test_every_table_of_a_page_is_understood",
    "sh": "tests/deploy/test_docs.py and test_every_command_of_a_page_could_be_called",
    "bash": "a job of SLURM, which is not there; files that are copied and edited",
    "yaml": "Prometheus's, which is not there to be tested",
    "json": "what a program prints",
    "text": "what a program prints",
    "bibtex": "for a paper",
    "math": "an equation: tests/docs/test_site.py",
    "{math}": "an equation: tests/docs/test_site.py",
}
EVERY_PAGE = [README, *sorted(DOCS.glob("*.md")), DOCS / "reproduction" / "index.md"]


def commands_of(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    found = LINE.findall(text)
    for kind, body in FENCED.findall(text):
        found += re.findall(r"^(sdfeel .*)$", body, re.MULTILINE) if kind == "sh" else []
    return [re.sub(r"\s+#.*$", "", line).strip() for line in found if not line.endswith("\\")]


COMMANDS = sorted({line for path in EVERY_PAGE for line in commands_of(path)})


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_a_page_could_be_called(line: str) -> None:
    """With these options: a page once named one that no longer was."""
    words = shlex.split(line)
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (DOCS.parent / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets
    elif words[0] == "python":
        assert (DOCS.parent / words[1]).is_file()
    else:
        command = typer.main.get_command(app)
        at = 1
        while hasattr(command, "commands") and at < len(words) and not words[at].startswith("-"):
            command, at = command.commands[words[at]], at + 1
        known = {
            name for option in command.params for name in (*option.opts, *option.secondary_opts)
        }
        given = {word.partition("=")[0] for word in words[at:] if word.startswith("--")}
        assert given <= known | {"--help", "--install-completion", "--show-completion"}


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: path.stem)
def test_every_kind_of_block_has_a_test_or_a_reason(path: Path) -> None:
    fence = re.compile(r"^ *```([\w{}-]+)\n(?:.*?)^ *```", re.DOTALL | re.MULTILINE)
    assert set(fence.findall(path.read_text(encoding="utf-8"))) <= set(KINDS)


@pytest.mark.parametrize("path", EVERY_PAGE, ids=lambda path: path.stem)
def test_every_table_of_a_page_is_understood(path: Path) -> None:
    for text in blocks(path, "toml"):
        tomllib.loads(text)
