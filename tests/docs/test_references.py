"""Pages that are made from the code are as the code says, and every example on them runs."""

import doctest
import re
from pathlib import Path

import pytest
import references  # docs/references.py

import sdfeel

PAGE = references.reference()


def test_no_page_is_old() -> None:
    assert not [*references.stale()], "run python docs/references.py"


def test_a_page_that_was_changed_by_hand_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "DOCS", tmp_path)
    monkeypatch.setattr(references, "PAGES", {"a": lambda: "text", "b": lambda: "text"})
    assert [*references.stale()] == ["a.md", "b.md"]
    assert references.main.__doc__
    (tmp_path / "a.md").write_text(references.MADE + "text")
    (tmp_path / "b.md").write_text(references.MADE + "other text")
    assert [*references.stale()] == ["b.md"]


@pytest.mark.parametrize("name", sdfeel.__all__)
def test_the_example_of_a_public_name_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the page, in `help`, and with the names that the page begins with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDFEEL_CC", "no-such-compiler")  # a compiler takes longer than an example
    (beginning,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(beginning, names)  # noqa: S102 - ours
    example = references.example_of(name)
    assert f"### {name}\n" in PAGE
    assert example in PAGE
    test = doctest.DocTestParser().get_doctest(example, names, name, None, None)
    assert test.examples
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert not report, "".join(report)
