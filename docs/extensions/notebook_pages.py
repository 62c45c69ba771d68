"""Notebooks as pages: their cells as Markdown, code with what it printed and drew."""

from __future__ import annotations

import json

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def to_markdown(text: str) -> str:
    """The cells of a notebook, one after the other."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        said = "".join(
            line for output in cell["outputs"] for line in output.get("text", [])
        ).rstrip()
        if said:
            parts.append(f"```text\n{said}\n```")
        for output in cell["outputs"]:
            if picture := output.get("data", {}).get("image/png"):
                source = f"data:image/png;base64,{picture}"
                parts.append(f'<img class="figure" alt="What the cell draws" src="{source}">')
    return "\n\n".join(parts) + "\n"


class NotebookParser(MystParser):  # type: ignore[misc]
    """Markdown after all."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Read a notebook into a page."""
        super().parse(to_markdown(inputstring), document)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
