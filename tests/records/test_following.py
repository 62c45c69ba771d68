"""A run that grows is read once; what was rewritten is read again."""

from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sdfeel.records.folder import metrics_csv
from sdfeel.records.reading import FollowedTable, read_run
from sdfeel.records.trace import Trace

rows = st.lists(
    st.fixed_dictionaries(
        {"seconds": st.floats(), "a,b": st.floats(allow_nan=False)},
        optional={"late": st.floats(allow_nan=False)},
    ),
    min_size=1,
    max_size=12,
)


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@given(content=rows, cut=st.integers(0, 12))
def test_in_two_looks_as_in_one(content: list[dict[str, float]], cut: int, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    table = [{"iteration": float(n), **row} for n, row in enumerate(content)]
    file = folder / "metrics.csv"
    followed = FollowedTable(file)
    for part in (table[: min(cut, len(table))], table):
        if part:
            file.write_text(metrics_csv(part))
            followed.look()
    (folder / "run.json").write_text("{}")
    frame = read_run(folder).metrics
    assert followed.problem == ""
    assert set(followed.columns) == set(frame.columns)
    for name, column in followed.columns.items():
        assert all(same(a, b) for a, b in zip(column, frame[name], strict=True)), name


def test_only_the_rest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text("iteration,x\n0,1\n")
    table = FollowedTable(file)
    assert table.look()
    assert not table.look(), "nothing is new"
    file.write_text("iteration,x\n0,1\n5,2\n")
    table.look()
    assert (table.rows, table.edition) == (2, 0)
    file.write_text("iteration,x\n0,3\n")
    table.look()
    assert (table.rows, table.edition, table.row(0)["x"]) == (1, 1, 3.0)
    file.unlink()
    table.look()
    assert table.rows == 0


def test_a_torn_line_is_not_there_yet(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text("iteration,x\n0,1\n5,2")
    table = FollowedTable(file)
    table.look()
    assert table.rows == 1
    file.write_text("iteration,x\n0,1\n5,27\n")
    table.look()
    assert table.row(1)["x"] == 27


def test_the_trace_of_a_resumed_run_goes_on(tmp_path: Path) -> None:
    import torch

    servers = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    first = Trace(tmp_path / "trace.csv", [(0, 1)], None)
    for iteration in (0, 10, 20):
        first.note(iteration, servers, {"loss": [0.5, iteration]})
    again = Trace(tmp_path / "trace.csv", [(0, 1)], 10)
    again.note(20, servers, {"loss": [0.5, 7.0]})
    table = FollowedTable(tmp_path / "trace.csv")
    table.look()
    assert list(table.columns["iteration"]) == [0, 10, 20], "what comes after the checkpoint went"
    assert list(table.columns["0-1"]) == [5.0] * 3
    assert list(table.columns["loss 1"]) == [0, 10, 7], "each server's own numbers"
    assert list(table.columns["elapsed"]) == sorted(table.columns["elapsed"])
