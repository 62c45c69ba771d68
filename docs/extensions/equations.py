r"""Equations as MathML, made while the pages are built: browsers show it without JavaScript.

Pages have the notation that is safe from Markdown on GitHub: $`\tau_1`$ in a line, and a fence of
the language `math` for an equation on its own. Without a font made for mathematics roots and braces
don't grow with what they hold, so one comes along, inside a style sheet: a font in a file of its
own is refused by browsers that read pages from disk.
"""

from __future__ import annotations

import base64
import html
import io
import logging as standard_logging
import re
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from fontTools.subset import Options, Subsetter
from fontTools.ttLib import TTFont
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
standard_logging.getLogger("fontTools").setLevel("WARNING")  # it tells of every letter

INLINE = re.compile(r"\$`([^`]+)`\$")
BEFORE = re.compile(r"(.*?)(\S*)", re.DOTALL)  # all but what touches an equation on its left
AFTER = re.compile(r"(\S*)(.*)", re.DOTALL)
MATHML = re.compile(r"<math.*?</math>", re.DOTALL)
# What browsers draw without its being in the text: the italic form of a letter that stands alone
# (Latin, the Planck constant for h, Greek), and the sign of a root.
UNWRITTEN = {*range(0x1D434, 0x1D468), 0x210E, *range(0x1D6E2, 0x1D71C), 0x221A}
FONT = "fonts/STIXTwoMath-Regular.ttf"  # of the package ziamath

converter = LatexToMathML(fancy_error=False)


class Tied(nodes.inline):
    """An equation in a line, with what touches it."""


def read_inline(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Turn GitHub's inline equations into MyST's."""
    source[0] = INLINE.sub(r"{math}`\1`", source[0])


def write_math(translator: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    """Write an equation as MathML; one that cannot be translated is a warning, so an error."""
    block = isinstance(node, nodes.math_block)
    latex = node.astext()
    try:
        mathml = converter.convert_with_local_state(latex, displaystyle=block)
    except LatexError as problem:
        logger.warning("equation %r: %s", latex, problem, location=node)
        mathml = translator.encode(latex)
    translator.body.append(f'<div class="math">{mathml}</div>\n' if block else mathml)
    raise nodes.SkipNode


def tie(_app: Sphinx, page: nodes.document, _name: str) -> None:
    """Keep a bracket or a comma on the line of the equation that it touches."""
    for parent in {equation.parent for equation in page.findall(nodes.math)}:
        children = list(parent.children)
        parent.clear()
        for child in children:
            last = parent[-1] if len(parent) else None
            if isinstance(child, nodes.math):
                group = Tied("", "", classes=["tied"])
                if isinstance(last, nodes.Text):
                    rest, touching = BEFORE.fullmatch(last).groups()
                    parent[-1] = nodes.Text(rest)
                    group.append(nodes.Text(touching))
                group.append(child)
                parent.append(group)
            elif isinstance(child, nodes.Text) and isinstance(last, Tied):
                touching, rest = AFTER.fullmatch(child).groups()
                last.append(nodes.Text(touching))
                parent.append(nodes.Text(rest))
            else:
                parent.append(child)


def write_font(app: Sphinx, problem: Exception | None) -> None:
    """Leave the letters of all equations as a font in `_static/equations.css`."""
    if problem is not None:
        return
    pages = (page.read_text(encoding="utf-8") for page in Path(app.outdir).rglob("*.html"))
    text = html.unescape("".join(found for page in pages for found in MATHML.findall(page)))
    package = find_spec("ziamath")
    if package is None or package.origin is None:
        raise FileNotFoundError(f"{FONT} of the package ziamath")
    font = TTFont(Path(package.origin).parent / FONT)
    subsetter = Subsetter(Options(layout_features=["*"]))
    subsetter.populate(unicodes={ord(letter) for letter in text} | UNWRITTEN)
    subsetter.subset(font)
    font.flavor = "woff"
    packed = io.BytesIO()
    font.save(packed)
    data = base64.b64encode(packed.getvalue()).decode("ascii")
    rule = f'@font-face {{ font-family: "Equations"; src: url(data:font/woff;base64,{data}); }}\n'
    (Path(app.outdir) / "_static" / "equations.css").write_text(rule, encoding="ascii")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", read_inline)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math, None))
    app.connect("doctree-resolved", tie)
    app.connect("build-finished", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
