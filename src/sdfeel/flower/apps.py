"""Flower apps: found by import path, and looked at before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flwr.clientapp import ClientApp

from sdfeel.errors import InputError
from sdfeel.importing import imported

__all__ = ["evaluates", "find_app", "is_legacy"]

SECURE = ("secaggplus_mod", "secagg_mod")  # Flower's mods for secure aggregation
DEEPEST = 8  # functions inside functions, as mods are wrapped around an app's


def find_app(field: str, given: Any, beside: Path | None = None) -> ClientApp:
    """Return the app itself, or the one at an import path such as `my_app.client_app:app`.

    Raises:
        InputError: it is no app, or one that cannot be carried out here; the sentence says why.
    """
    app = imported(field, given, beside) if isinstance(given, str) else given
    shown = given if isinstance(given, str) else type(app).__name__
    if not isinstance(app, ClientApp):
        raise InputError(
            field, shown, "must be a flwr.clientapp.ClientApp, such as ClientApp(client_fn)"
        )
    if not is_legacy(app) and not _has(app, "train"):
        raise InputError(field, shown, f"the app has no `@app.train()`{_instead(app)}")
    for name in SECURE:
        if name in _mods(app):
            raise InputError(
                field,
                shown,
                f"the app uses `{name}`: secure aggregation needs messages between Flower's own "
                f"server and clients that are not exchanged here; leave `{name}` out of `mods`",
            )
    return app


def is_legacy(app: ClientApp) -> bool:
    """Whether it was made of a `client_fn`, for NumPyClient and Client."""
    return app._call is not None


def evaluates(app: ClientApp) -> bool:
    """Whether it has an `evaluate`; of a legacy client that is only known when it is asked."""
    return is_legacy(app) or _has(app, "evaluate")


def _has(app: ClientApp, kind: str) -> bool:
    return f"{kind}.default" in app._registered_funcs


def _instead(app: ClientApp) -> str:
    """Say what the app has in place of it, and why that is not enough."""
    names = sorted(name.removesuffix(".default") for name in app._registered_funcs)
    if not names:
        return ""
    shown = " and ".join(f"`{name}`" for name in names)
    if all(name.startswith("query") for name in names):
        return f": it answers {shown}, and here clients train a model that servers average"
    return f" but {shown}: a server app of its own asks for these, and here servers average models"


def _mods(app: ClientApp) -> set[str]:
    """Names of all mods, of the app and of single functions."""
    functions = [*app._mods, *app._registered_funcs.values()]
    return {name for function in functions for name in _names(function)}


def _names(function: Any, depth: int = 0) -> Iterator[str]:
    """Names of a function and of those that it is wrapped around."""
    yield getattr(function, "__name__", "")
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # not filled
            continue
        for each in inner if isinstance(inner, list | tuple) else [inner]:
            if callable(each) and depth < DEEPEST:
                yield from _names(each, depth + 1)
