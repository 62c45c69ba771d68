"""The reference page: all that `sdfeel` makes public, from its docstrings, by autodoc."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

from docstrings import to_rst
from sphinx.application import Sphinx

import sdfeel

UNNAMED = re.compile(r"<factory>|<function .*?>(?=[,)])")
KINDS = ("Functions", "Classes", "Tables", "Errors")


def add_names(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append the public names, by kind, to the reference page."""
    if page != "reference":
        return
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in sdfeel.__all__:
        kind, lines = _entry(name, getattr(sdfeel, name))
        found[kind] += lines
    for kind, lines in found.items():
        source[0] += "\n".join(["", f"## {kind}", "", "```{eval-rst}", *lines, "```", ""])


def add_settings(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append the settings to their page."""
    if page != "settings":
        return
    from sdfeel.simulation.settings import reference

    source[0] += "\n| key | argument | default | |\n| --- | --- | --- | --- |\n"
    for row in reference():
        default = row["default"].replace("|", "\\|")
        cells = (f"`{row['key']}`", f"`{row['argument']}`", f"`{default}`", row["about"])
        source[0] += f"| {' | '.join(cells)} |\n"


def _entry(name: str, value: object) -> tuple[str, list[str]]:
    """Of which kind a name is, and the directives that document it."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return "Errors", [f".. autoexception:: sdfeel.{name}", "   :show-inheritance:", ""]
    if inspect.isclass(value):
        return "Classes", [f".. autoclass:: sdfeel.{name}", "   :members:", ""]
    if inspect.isfunction(value):
        return "Functions", [f".. autofunction:: sdfeel.{name}", ""]
    if isinstance(value, Mapping):
        return "Tables", _table(name, value)
    raise TypeError(f"sdfeel.{name}: a {type(value).__name__} has no place on the reference page")


def _table(name: str, table: Mapping[str, object]) -> list[str]:
    lines = [f".. py:data:: {name}", "   :module: sdfeel", ""]
    for key, entry in table.items():
        summary = getattr(entry, "summary", None) or (inspect.getdoc(entry) or "").split("\n")[0]
        lines += [f"   ``{key!r}``", *(f"       {line}" for line in to_rst([summary or "–"]))]
    return lines


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
    app.connect("source-read", add_names)
    app.connect("source-read", add_settings)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", read_docstring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
