"""The table of contents lives in conf.py, so that the front page reads well on GitHub too."""

from __future__ import annotations

from sphinx.application import Sphinx


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the hidden tables of contents to the front page."""
    if page != app.config.root_doc:
        return
    for caption, pages in app.config.contents.items():
        entries = [f"{title} <{name}>" for title, name in pages.items()]
        lines = ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *entries, "```", ""]
        source[0] += "\n".join(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_config_value("contents", {}, "env", dict)
    app.connect("source-read", add_contents)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
