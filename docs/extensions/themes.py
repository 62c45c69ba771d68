"""Pictures for both themes: a screenshot in the dark on dark pages, figures on a light card.

Of `images/x-light.png` and `images/x-dark.png` a page names one; a reader gets the one that fits.
Other pictures get a class, by which `static/pages.css` knows them.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

THEMES = ("light", "dark")


def add_themes(app: Sphinx, document: nodes.document) -> None:
    """Put a picture for each theme in place of each that has both."""
    folder = Path(app.env.doc2path(app.env.docname)).parent
    for image in list(document.findall(nodes.image)):
        uri = image["uri"]
        twins = {theme: _twin(uri, theme) for theme in THEMES}
        if uri not in twins.values() or not all(
            (folder / twin).is_file() for twin in twins.values()
        ):
            image["classes"].append("figure")
            continue
        pictures = []
        for theme, twin in twins.items():
            picture = image.deepcopy()
            picture["uri"] = twin
            picture["classes"].append(f"only-{theme}")
            pictures.append(picture)
        image.replace_self(pictures)


def _twin(uri: str, theme: str) -> str:
    for other in THEMES:
        if uri.endswith(f"-{other}.png"):
            return uri.removesuffix(f"-{other}.png") + f"-{theme}.png"
    return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx, before pictures are collected."""
    app.connect("doctree-read", add_themes, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
