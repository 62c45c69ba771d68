"""What screen readers and keyboards need beyond what the theme writes."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

# Sphinx lists the arguments of a long signature as definitions of nothing.
ARGUMENTS = re.compile(
    r"<dl>\n(?P<items>(?:<dd><em class=\"sig-param\">.*?</dd>\n)+)</dl>", re.DOTALL
)


def list_arguments(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _document: object
) -> None:
    """Write the arguments of a signature as a list."""
    if "body" in context:
        context["body"] = ARGUMENTS.sub(_listed, context["body"])


def _listed(match: re.Match[str]) -> str:
    items = match["items"].replace("<dd>", '<span class="argument">').replace("</dd>", "</span>")
    return f'<span class="arguments">{items}</span>'


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
    app.connect("html-page-context", list_arguments, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
