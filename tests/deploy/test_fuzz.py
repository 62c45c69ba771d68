"""No parser lets anything out but the named errors, whatever it is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzzing import parsers, quick_folder

NAMES = [
    "deployment file",
    "store",
    "model file",
    "run file",
    "--set",
    "latency profile",
    "graph file",
    "checkpoint",
    "ar archive",
    "tar archive",
    "gzip file",
    "wire",
    "run folder",
]


def test_every_parser_is_in_the_list(tmp_path: Path) -> None:
    assert [parser.name for parser in parsers(tmp_path)] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_only_named_errors_come_out(name: str) -> None:
    with quick_folder() as folder:
        (parser,) = (parser for parser in parsers(folder) if parser.name == name)
        for example in parser.examples:
            parser.parse(example)
        for number, data in parser.inputs(seed=0):
            if number == parser.count:
                break
            escaped = parser.try_one(data)
            assert escaped is None, f"input {number}, {data[:300]!r}: {escaped}"
