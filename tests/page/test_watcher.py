"""The thread that asks a deployment's edges for the page: nothing ends it but its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfeel.errors import InputError
from sdfeel.page import deployment
from sdfeel.page.deployment import Watcher


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (InputError("certificate", "a.pem", "is missing"), "is missing"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
        (TypeError("Password was not given"), "Password was not given"),
        (ExceptionGroup("tasks", [ValueError("half a file")]), "half a file"),
    ],
)
def test_whatever_goes_wrong_is_shown_and_the_edges_are_asked_again(
    monkeypatch: pytest.MonkeyPatch, problem: Exception, sentence: str
) -> None:
    monkeypatch.setattr(deployment, "EVERY", 0)
    watcher = Watcher(Path("deployment.toml"))
    shown: list[str] = []

    async def follow() -> None:
        shown.append(watcher.shown()["problem"])
        if len(shown) == 3:
            watcher.stop()
        raise problem

    monkeypatch.setattr(watcher, "_follow", follow)
    watcher._run()
    assert len(shown) == 3
    assert sentence in shown[1] == shown[2]
