"""Code of the pages that newcomers read first runs as it stands there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import notebooks as runner  # docs/notebooks.py
import pytest

from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.experiments.run import run

PAGES = ("data", "own_loop", "own_method")


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: str, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDFEEL_CC", "no-such-compiler")  # many small models: compiling takes longer
    text = (docs / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {"__name__": page}
    for number, block in enumerate(blocks, 1):
        code = compile(block, f"{page}.md, block {number}", "exec", dont_inherit=True)
        exec(code, names)  # noqa: S102 - ours


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
