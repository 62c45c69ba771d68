"""What can be given to the functions that people call is in what `help` says of them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

import sdfeel


def named(function: Any) -> set[str]:
    """The arguments of a docstring: lines such as `    out: folder that ...` under `Args:`."""
    _, _, section = str(inspect.getdoc(function)).partition("Args:\n")
    arguments = section.partition("\n\n")[0]
    return set(re.findall(r"^    (\w+): ", arguments, re.MULTILINE))


@pytest.mark.parametrize("function", [sdfeel.train, sdfeel.compare, sdfeel.plan, sdfeel.load])
def test_every_parameter_is_in_the_docstring(function: Any) -> None:
    parameters = set(inspect.signature(function).parameters)
    assert parameters <= named(function), sorted(parameters - named(function))


@pytest.mark.parametrize("function", [sdfeel.train, sdfeel.compare, sdfeel.plan, sdfeel.load])
def test_the_docstring_names_no_parameter_that_is_gone(function: Any) -> None:
    parameters = set(inspect.signature(function).parameters)
    assert named(function) <= parameters, sorted(named(function) - parameters)
