from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from worlds import Problem

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.files import write_atomically
from sdfeel.records.folder import metrics_csv


def train(small: Problem, out: Path, **options: object) -> sdfeel.Result:
    return sdfeel.train(
        small.model,
        small.datasets,
        network=small.network,
        schedule=Schedule(2, 2, 1),
        steps=10,
        lr=0.1,
        averager="metropolis",
        engine="vectorised",
        seed=7,
        out=out,
        test=small.datasets[0],
        **options,
    )


def test_a_run_folder_holds_all_there_is_to_know(small: Problem, tmp_path: Path) -> None:
    result = train(small, tmp_path / "deep" / "run", config={"name": "mine"})
    folder = result.folder
    assert folder == tmp_path / "deep" / "run"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint.safetensors",
        "environment.json",
        "metrics.csv",
        "model.safetensors",
        "network.json",
        "run.json",
        "servers.safetensors",
        "summary.json",
        "trace.csv",
    ]
    run = json.loads((folder / "run.json").read_text())
    assert run["name"] == "mine"
    assert run["seed"] == 7
    assert run["scheme"] == "sd-feel"
    environment = json.loads((folder / "environment.json").read_text())
    assert environment["seed"] == 7
    assert environment["packages"]["torch"] == torch.__version__
    assert {"python", "platform", "processor", "git_revision"} <= set(environment)
    summary = json.loads((folder / "summary.json").read_text())
    for name, value in result.summary().items():
        assert summary[name] == pytest.approx(value), name


def test_without_a_config_the_settings_of_the_call_are_kept(small: Problem, tmp_path: Path) -> None:
    train(small, tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["schedule"] == {"tau1": 2, "tau2": 2, "alpha": 1, "participation": 1.0}
    assert run["clusters"] == [[0, 3], [1, 2, 4], [5]]
    assert run["links"] == [[0, 1], [1, 2]]
    assert run["samples"] == [12, 5, 9, 20, 4, 7]
    assert (run["lr"], run["steps"], run["averager"]) == (0.1, 10, "metropolis")


def test_models_of_a_run_are_plain_safetensors(small: Problem, tmp_path: Path) -> None:
    result = train(small, tmp_path)
    kept = load_file(tmp_path / "model.safetensors")
    own = dict(result.model.named_parameters())
    assert set(kept) == set(own)
    for name, value in kept.items():
        assert torch.equal(value, own[name])
    servers = load_file(tmp_path / "servers.safetensors")["servers"]
    assert servers.shape == (3, sum(p.numel() for p in own.values()))


def test_pandas_reads_the_metrics_to_the_last_bit(small: Problem, tmp_path: Path) -> None:
    result = train(small, tmp_path)
    table = pd.read_csv(tmp_path / "metrics.csv")
    pd.testing.assert_frame_equal(table, result.history, check_exact=True)


@given(
    st.lists(
        st.fixed_dictionaries({"iteration": st.integers(0, 10**9), "x": st.floats()}), min_size=1
    )
)
def test_every_float_round_trips(rows: list[dict[str, float]]) -> None:
    lines = metrics_csv([{"iteration": row["iteration"], "x": row["x"]} for row in rows]).split()
    assert lines[0] == "iteration,x"
    for row, line in zip(rows, lines[1:], strict=True):
        iteration, x = line.split(",")
        assert int(iteration) == row["iteration"]
        assert float(x) == row["x"] or (math.isnan(float(x)) and math.isnan(row["x"]))


def test_a_column_that_comes_later_leaves_gaps_before() -> None:
    assert metrics_csv([{"iteration": 0}, {"iteration": 1, "x": 0.5}]) == "iteration,x\n0,\n1,0.5\n"


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_is_named_before_any_training(
    small: Problem, tmp_path: Path, where: str
) -> None:
    """A file in the way stops everybody, also root, whom no permission stops."""
    (tmp_path / "file").write_text("mine")
    stepped = []
    with pytest.raises(InputError, match="folder that can be written") as error:
        train(small, tmp_path / where, on_progress=stepped.append)
    assert error.value.field == "out"
    assert str(tmp_path / where) in str(error.value)
    assert not stepped
    assert (tmp_path / "file").read_text() == "mine"


def test_what_a_killed_writer_left_behind_is_cleared_away(small: Problem, tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.safetensors.abc.tmp").write_bytes(b"half")
    train(small, tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
