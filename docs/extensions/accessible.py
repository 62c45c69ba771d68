"""What screen readers and keyboards need beyond what the theme writes."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def add_levels(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: object
) -> None:
    """Give the captions of the side bar a level: a heading without one is none."""
    for key in ("furo_navigation_tree", "toctree"):
        if isinstance(context.get(key), str):
            context[key] = context[key].replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, after the theme has made its side bar."""
    app.connect("html-page-context", add_levels, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
