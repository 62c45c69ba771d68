"""Flower apps: found by import path, and looked at before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flwr.clientapp import ClientApp

from sdfeel.errors import InputError
from sdfeel.importing import imported

__all__ = ["evaluates", "find_app", "is_legacy"]


def find_app(field: str, given: Any, beside: Path | None = None) -> ClientApp:
    """The app itself, or the one at an import path such as `my_app.client_app:app`."""
    app = imported(field, given, beside) if isinstance(given, str) else given
    if not isinstance(app, ClientApp):
        shown = given if isinstance(given, str) else type(app).__name__
        raise InputError(
            field, shown, "must be a flwr.clientapp.ClientApp, such as ClientApp(client_fn)"
        )
    if not is_legacy(app) and not _has(app, "train"):
        raise InputError(field, _names(app), "the app has no `@app.train()`")
    return app


def is_legacy(app: ClientApp) -> bool:
    """Whether it was made of a `client_fn`, for NumPyClient and Client."""
    return app._call is not None


def evaluates(app: ClientApp) -> bool:
    """Whether it has an `evaluate`; of a legacy client that is only known when it is asked."""
    return is_legacy(app) or _has(app, "evaluate")


def _has(app: ClientApp, kind: str) -> bool:
    return f"{kind}.default" in app._registered_funcs


def _names(app: ClientApp) -> list[str]:
    return sorted(app._registered_funcs)
