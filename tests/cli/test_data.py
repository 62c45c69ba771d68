from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sdfeel.cli.data import app
from sdfeel.data import PARTITIONS
from sdfeel.errors import InputError

run = CliRunner()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SDFEEL_DATA", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_list_says_what_is_here(cache: Path) -> None:
    (cache / "mnist").mkdir()
    (cache / "mnist" / "train-labels-idx1-ubyte").write_bytes(b"too short")
    rows = json.loads(run.invoke(app, ["list", "--json"]).stdout)
    states = {row["name"]: row["state"] for row in rows}
    expected = {"mnist-5k": "yes", "mnist": "damaged", "fashion-mnist": "no", "cifar10": "no"}
    assert states == expected
    text = run.invoke(app, ["list"]).stdout
    assert all(name in text for name in expected)


def test_fetch_of_what_is_here() -> None:
    result = run.invoke(app, ["fetch", "mnist-5k"])
    assert result.exit_code == 0
    assert "mnist-5k: ready in" in result.stdout
    answer = json.loads(run.invoke(app, ["fetch", "mnist-5k", "--json"]).stdout)
    assert answer["source"] == "inside this package"
    assert answer["tried"] == []


def test_show_counts_every_sample() -> None:
    arguments = ["show", "mnist-5k", "--clients", "8", "--seed", "3"]
    answer = json.loads(run.invoke(app, [*arguments, "--json"]).stdout)
    assert (answer["partition"], answer["clients"]) == ("dirichlet-fedma", 8)
    assert sum(answer["samples"]) == 4000
    assert [sum(row) for row in answer["histogram"]] == answer["samples"]
    assert [sum(column) for column in zip(*answer["histogram"], strict=True)] == [400] * 10
    text = run.invoke(app, arguments).stdout
    assert "mnist-5k over 8 clients, dirichlet-fedma, seed 3" in text
    assert f"least {min(answer['samples'])}, mean 500.0, most {max(answer['samples'])}" in text


def test_show_draws_who_holds_what(tmp_path: Path) -> None:
    """A circle for each client and label that it holds, its area the samples."""
    from sdfeel.reports.partition import MOST_CLIENTS, draw_partition

    arguments = ["show", "mnist-5k", "--clients", "8", "--figure", str(tmp_path / "who.png")]
    assert run.invoke(app, arguments).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"who.png", "who.svg"}
    counts = np.array([[0, 4], [1, 9]])
    (axes,) = draw_partition(counts).axes
    circles = axes.collections[0].get_paths()
    widths = [circle.get_extents().width for circle in circles]
    assert np.allclose(np.square(widths) / widths[0] ** 2, np.array([4, 1, 9]) / 4)
    draw_partition(np.ones((MOST_CLIENTS, 2), int))
    with pytest.raises(InputError, match="100 clients at most"):
        draw_partition(np.ones((MOST_CLIENTS + 1, 2), int))


def test_show_passes_its_options_on() -> None:
    arguments = [
        "show",
        "mnist-5k",
        "--partition",
        "dirichlet",
        "--concentration",
        "1000",
        "--json",
    ]
    assert json.loads(run.invoke(app, arguments).stdout)["labels_per_client_mean"] == 10


def test_mistakes_reach_the_top_level_as_errors_for_people() -> None:
    for arguments in (
        ["fetch", "mnst"],
        ["show", "mnist-5k", "--clients", "0"],
        ["show", "cifar10"],
    ):
        assert isinstance(run.invoke(app, arguments).exception, InputError)


def test_the_help_names_every_partition() -> None:
    text = run.invoke(app, ["show", "--help"]).stdout
    assert all(name in text for name in PARTITIONS)
