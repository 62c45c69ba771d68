"""What a user names by `package.module:function`: a mistake is an InputError, whatever it is."""

from __future__ import annotations

import os.path

import pytest

from sdfeel.errors import InputError
from sdfeel.importing import imported


def test_a_function_is_found() -> None:
    assert imported("model", "os.path:join") is os.path.join


@pytest.mark.parametrize(
    "path", ["..:x", ".:x", ".os:path", "", ":", ":x", "os:", "os", "nowhere:x", "os:nothing",
             "os:path.join", "os:sep", "a\0b:c"],
)  # fmt: skip
def test_a_path_that_leads_to_no_function_is_named(path: str) -> None:
    with pytest.raises(InputError, match="model") as caught:
        imported("model", path)
    assert caught.value.value == path
