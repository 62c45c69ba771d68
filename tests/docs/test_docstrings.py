"""Docstrings reach the reference as they were written, whatever signs the mathematics needs."""

import pytest

pytest.importorskip("docutils", reason="the documentation's tools come with sdfeel[dev]")

from docstrings import to_rst
from docutils import core, nodes
from docutils.parsers.rst import roles
from hypothesis import example, given
from hypothesis import strategies as st

roles.register_local_role(
    "py:obj", lambda _name, raw, text, *_args, **_options: ([nodes.literal(raw, text)], [])
)

SIGNS = "ab1_*|\\^~'\"()<>=.,+-"
WORDS = st.builds(
    "{}{}".format, st.sampled_from(["a", "b", "iv", "(b"]), st.text(SIGNS, max_size=7)
)


def read(lines: list[str]) -> nodes.document:
    """As docutils reads it, where a warning is an error."""
    settings = {"halt_level": 2, "report_level": 5, "smart_quotes": False}
    return core.publish_doctree("\n".join(to_rst(lines)), settings_overrides=settings)


@example(["a."])  # would begin a list
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_no_sign_is_taken_for_markup(words: list[str]) -> None:
    """|S_i|, u_k_, 2*x and a\\b are text: read as markup they would be errors, or be lost."""
    sentence = " ".join(words)
    assert read([sentence]).astext() == sentence


def test_a_table_of_names_becomes_a_definition_list() -> None:
    page = read(
        [
            "What it does.",
            "",
            "model          any `nn.Module`",
            "steps, until   iterations K,",
            "               and more",
            "",
            "The end.",
        ]
    )
    assert [term.astext() for term in page.findall(nodes.term)] == ["model", "steps, until"]
    said = [text.astext() for text in page.findall(nodes.definition)]
    assert said == ["any nn.Module", "iterations K,\nand more"]
    assert [child.tagname for child in page] == ["paragraph", "definition_list", "paragraph"]


def test_examples_and_formulas_stay_as_they_are() -> None:
    page = read(["A sum:", "", "    W <- W (I - c_l A)", "", ">>> 1 + 1", "2"])
    assert [child.tagname for child in page] == ["paragraph", "literal_block", "doctest_block"]
    assert page[1].astext() == "W <- W (I - c_l A)"


def test_two_spaces_inside_a_sentence_make_no_table() -> None:
    page = read(["One sentence.  And another", "over two lines"])
    assert [child.tagname for child in page] == ["paragraph"]
