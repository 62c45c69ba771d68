"""From docstrings as they are written here to the reStructuredText that autodoc expects.

Docstrings are plain text: words in backticks, `>>>` examples, indented formulas, and tables of
names with two or more spaces before what they mean.
"""

from __future__ import annotations

import re
from itertools import groupby

__all__ = ["to_rst"]

CODE = re.compile(r"(`[^`]+`)")
ROW = re.compile(r"(?P<name>\S+(?: \S+)*)(?P<gap> {2,})(?P<text>\S.*)")
SPECIAL = re.compile(r"([\\*|_])")
LETTERED = re.compile(r"\(?([A-Za-z]|[ivxlcdm]+|[IVXLCDM]+)[.)](?=\s|$)")  # the item of a list


def to_rst(lines: list[str]) -> list[str]:
    """The same text as reStructuredText, with nothing in it that would be taken for markup."""
    blocks = [
        list(group) for blank, group in groupby(lines, lambda line: not line.strip()) if not blank
    ]
    return [line for block in blocks for line in [*_block(block), ""]]


def _block(block: list[str]) -> list[str]:
    if block[0].startswith(">>>"):
        return block
    if block[0].startswith(" "):
        return ["::", "", *block]
    text = [_text(line) for line in block]
    return _table(block) or [f"\\{line}" if LETTERED.match(line) else line for line in text]


def _table(block: list[str]) -> list[str]:
    """A definition list, if every line is a row or goes on under the text of the row before."""
    first = ROW.fullmatch(block[0])
    if first is None:
        return []
    column = first.start("text")
    rows: list[str] = []
    for line in block:
        row = ROW.fullmatch(line)
        if row is not None and row.start("text") == column:
            rows += [f"``{row['name']}``", f"    {_text(row['text'])}"]
        elif not line[:column].strip():
            rows.append(f"    {_text(line.strip())}")
        else:
            return []
    return rows


def _text(line: str) -> str:
    parts = CODE.split(line)
    return "".join(
        f":py:obj:{part}" if CODE.fullmatch(part) else SPECIAL.sub(r"\\\1", part) for part in parts
    )
