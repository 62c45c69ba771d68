"""What a user names by `package.module:function`: a mistake is an InputError, whatever it is."""

from __future__ import annotations

import os.path
import sys
from pathlib import Path

import pytest

from sdfeel.errors import InputError
from sdfeel.importing import imported


def test_a_function_is_found() -> None:
    assert imported("model", "os.path:join") is os.path.join


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def build(\n    pass\n", r"line 1: SyntaxError: '\(' was never closed"),
        ("x = 1\ny = z\n", "line 2, in <module>: NameError: name 'z' is not defined"),
        ("import nowhere\n", "line 1, in <module>: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_mistake_in_a_users_file_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"mistaken_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(InputError, match=rf"{name}:build': cannot be imported: {name}\.py, {said}"):
        imported("model.name", f"{name}:build")
    with pytest.raises(InputError, match=rf"module's name is wanted: {name}:build$"):
        imported("model.name", f"{name}.py:build")


@pytest.mark.parametrize(
    "path", ["..:x", ".:x", ".os:path", "", ":", ":x", "os:", "os", "nowhere:x", "os:nothing",
             "os:path.join", "os:sep", "a\0b:c"],
)  # fmt: skip
def test_a_path_that_leads_to_no_function_is_named(path: str) -> None:
    with pytest.raises(InputError, match="model") as caught:
        imported("model", path)
    assert caught.value.value == path
