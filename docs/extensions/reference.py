"""The reference page: the arguments and methods of every public name, by autodoc.

The page in the repository has a summary and an example of each; `docs/references.py` writes it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from docstrings import to_rst
from sphinx.application import Sphinx

import sdfeel

UNNAMED = re.compile(r"<factory>|<function .*?>(?=[,)])")
SECTION = re.compile(r"^### (?P<name>\w+)\n(?:(?!^##).*\n?)*", re.MULTILINE)


def add_arguments(_app: Sphinx, page: str, source: list[str]) -> None:
    """Put what autodoc knows of a public name in place of its summary and example."""
    if page == "reference":
        source[0] = SECTION.sub(_whole, source[0])


def _whole(section: re.Match[str]) -> str:
    name = section["name"]
    value = getattr(sdfeel, name)
    if inspect.isclass(value) and issubclass(value, Exception):
        lines = [f".. autoexception:: sdfeel.{name}", "   :show-inheritance:"]
    elif inspect.isclass(value):
        lines = [f".. autoclass:: sdfeel.{name}", "   :members:"]
    elif inspect.isfunction(value):
        lines = [f".. autofunction:: sdfeel.{name}"]
    else:
        return f"{section[0]}{_table(value)}"
    body = "\n".join(lines)
    return f"### {name}\n\n```{{eval-rst}}\n{body}\n```\n\n"


def _table(table: Mapping[str, object]) -> str:
    """Return what each entry of a table is, in a sentence."""
    rows = []
    for key, entry in table.items():
        text = getattr(entry, "summary", None) or (inspect.getdoc(entry) or "").split("\n")[0]
        rows.append(f"- `{key}`" + (f": {text}" if not isinstance(entry, str) else ""))
    return "\n".join(rows) + "\n\n"


def shorten_signature(
    _app: Sphinx,
    _what: str,
    _name: str,
    _value: object,
    _options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Write a default that has no name in source, such as a function's address, as `...`."""
    return UNNAMED.sub("...", signature) if signature else signature, returns


def read_docstring(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Give autodoc a docstring that it understands."""
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("source-read", add_arguments)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", read_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
