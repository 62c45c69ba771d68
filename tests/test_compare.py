"""`sdfeel.compare`: the runs are those of `train`, and mistakes are named before any training."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner
from worlds import Problem, vector

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.api import NegativeMixingWarning
from sdfeel.callbacks import Callback
from sdfeel.cli import app
from sdfeel.records.comparison import note_runs, read_runs

COMMON: dict[str, Any] = {
    "steps": 4, "lr": 0.1, "engine": "reference", "averager": "metropolis", "evaluate_every": 2,
    "schedule": Schedule(2, 1, 1),
}  # fmt: skip


class Counting(Callback):
    """Whether anything was trained."""

    def __init__(self) -> None:
        self.runs = 0

    def on_start(self, *_: Any) -> None:
        self.runs += 1


def compare(problem: Problem, variants: Any = None, **options: Any) -> sdfeel.Comparison:
    given = {"network": problem.network, **COMMON, **options}
    return sdfeel.compare(problem.model, problem.datasets, variants, **given)


def test_every_run_is_that_of_train(small: Problem) -> None:
    """Labels, seeds and what a variant changes arrive where they should."""
    rare = {"schedule": Schedule(2, 2, 1), "lr": 0.05}
    found = compare(small, {"often": {}, "rare": rare}, seeds=(3, 5))
    for label, change in {"often": {}, "rare": rare}.items():
        for seed, result, record in zip(
            (3, 5), found.results[label], found.records[label], strict=True
        ):
            alone = sdfeel.train(
                small.model, small.datasets, network=small.network,
                **{**COMMON, **change, "seed": seed},
            )  # fmt: skip
            np.testing.assert_array_equal(vector(result.model), vector(alone.model))
            pd.testing.assert_frame_equal(record.metrics, alone.history)
    assert list(found.table.index) == ["often", "rare"]
    assert found.table["seeds"].tolist() == [2, 2]
    assert set(found.curves["seed"]) == {3, 5}
    assert len(found.curves) == 2 * 2 * 3


def test_bands_are_over_seeds(small: Problem) -> None:
    found = compare(small, ["sd-feel"], seeds=3)
    losses = np.array([one.history["train_loss"] for one in found.results["sd-feel"]])
    lines = found.band("train_loss", x="iteration")
    np.testing.assert_allclose(lines["low"], losses.min(axis=0))
    np.testing.assert_allclose(lines["middle"], np.median(losses, axis=0))
    np.testing.assert_allclose(lines["high"], losses.max(axis=0))
    with pytest.raises(InputError, match="no run has it"):
        found.band("test_beauty")


def test_the_usual_schemes(small: Problem) -> None:
    found = compare(small)
    assert list(found.results) == ["sd-feel", "hierfavg", "fedavg", "feel"]
    shown = found._repr_html_()
    assert "<table" in shown
    assert "base64," in shown


@pytest.mark.parametrize(
    ("variants", "options", "match"),
    [
        (["sd-feel", "fedvg"], {}, r"variant fedvg: scheme = 'fedvg': did you mean 'fedavg'"),
        ({"a": {}, "b": {"averager": "papers"}}, {}, "variant b: averager = 'papers'"),
        ({"a": {}, "b": {"learning_rate": 1}}, {}, "variant b: learning_rate.*called lr"),
        ({"a": {}, "b": {"network": None}}, {}, "variant b: network"),
        ({"a": {}, "b": {"callbacks": [3]}}, {}, r"variant b: callbacks\[0\]"),
        ({"a": {}, "b": {"trainers": [3]}}, {}, "variant b: trainers"),
        ({"a": {}, "b": {"out": "here"}}, {}, "out = 'here': is said once"),
        ({"a": {}, "b": 3}, {}, "b = 3: a scheme, or a dict"),
        ({"a b": {}, "a-b": {}}, {}, "same folder as 'a b'"),
        (["sd-feel", "sd-feel"], {}, "each variant needs its own label"),
        ([{"lr": 0.1}], {}, "needs a label of its own"),
        ("sd-feel", {}, "variants = 'sd-feel'"),
        ([], {}, "at least one"),
        (["sd-feel"], {"seeds": 0}, "seeds = 0"),
        (["sd-feel"], {"seeds": [1, 1]}, "each once"),
        (["sd-feel"], {"seeds": 2, "seed": 3}, "seed = 3: beside seeds = 2: leave one"),
        ({"a": {"seed": 3}}, {"seeds": [1, 2]}, r"seed = 3: beside seeds = \[1, 2\]: leave one"),
        (["sd-feel"], {"seeds": "two"}, "seeds = 'two'"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(
    small: Problem, variants: Any, options: Any, match: str
) -> None:
    counting = Counting()
    with pytest.raises(InputError, match=match):
        compare(small, variants, callbacks=[counting], **options)
    assert counting.runs == 0


def test_a_warning_comes_once_and_from_the_users_line(small: Problem) -> None:
    """Not once for each seed, and not from where we call `train`."""
    with pytest.warns(NegativeMixingWarning) as told:
        compare(small, ["sd-feel", "fedavg"], seeds=2, averager="paper")
    assert [warning.category for warning in told].count(NegativeMixingWarning) == 1
    assert told[0].filename == __file__


def test_a_saved_comparison_is_read_by_everybody(small: Problem, tmp_path: Path) -> None:
    found = compare(small, ["sd-feel", "fedavg"], seeds=2, title="Both")
    written = found.save(tmp_path / "kept")
    assert written.page.is_file()
    again = sdfeel.load(tmp_path / "kept")
    pd.testing.assert_frame_equal(again.table, found.table)
    pd.testing.assert_frame_equal(again.curves, found.curves)
    assert again.title == "Both"
    assert repr(again).splitlines()[0] == "Both"
    assert len(repr(again).splitlines()) == 1 + 2 + 2  # the table, not all that is behind it
    assert not again.results
    with_models = sdfeel.load(tmp_path / "kept", small.model)
    for label, of in found.results.items():
        for one, kept in zip(of, with_models.results[label], strict=True):
            np.testing.assert_array_equal(vector(one.model), vector(kept.model))
    one = sdfeel.load(tmp_path / "kept" / "fedavg-seed-1", small.model)
    assert one.scheme == "fedavg"
    done = CliRunner().invoke(
        app, ["plot", str(tmp_path / "kept"), "--out", str(tmp_path / "c.pdf"), "--json"]
    )
    assert json.loads(done.stdout)["written"][0].endswith("c.pdf")
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(InputError, match="holds a comparison already"):
        found.save(tmp_path / "kept")
    with pytest.raises(InputError, match="loaded without a model"):
        again.save(tmp_path / "other")


def test_a_folder_is_gone_on_with(
    small: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done is not done again; what is not goes on; the result is the same."""
    noted = lambda folder, records, title: note_runs(  # noqa: E731 - figures take a while
        folder, title, {label: [one.path for one in of] for label, of in records.items()}
    )
    monkeypatch.setattr("sdfeel.experiments.comparison.write_comparison", noted)
    whole = compare(small, ["sd-feel", "fedavg"])
    steps: list[tuple[str, int]] = []
    note = partial(lambda name, progress: steps.append((name, progress.iteration)))
    compare(small, ["sd-feel"], out=tmp_path, on_progress=note)
    first = len(steps)
    assert first > 0
    found = compare(small, ["sd-feel", "fedavg"], out=tmp_path, on_progress=note)
    assert {name for name, k in steps[first:] if k < COMMON["steps"]} <= {"fedavg"}
    for label, of in whole.results.items():
        np.testing.assert_array_equal(vector(of[0].model), vector(found.results[label][0].model))
    assert list(read_runs(tmp_path)[1]) == ["sd-feel", "fedavg"]


def test_own_metrics_are_drawn_and_suffixes_honoured(small: Problem, tmp_path: Path) -> None:
    margin = {"spread": lambda outputs, targets: float(outputs.std() + 0 * targets.sum())}
    found = compare(small, ["sd-feel"], metrics=margin)
    figure = found.plot(tmp_path / "c.svg", spread="quartiles", x="iteration")
    assert any("spread" in axes.get_ylabel() for axes in figure.axes)
    assert (tmp_path / "c.svg").read_bytes().startswith(b"<?xml")


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"version": 2, "runs": {}}', '{"version": 1, "runs": {}}',
     '{"version": 1, "runs": {"a": ["../elsewhere"]}}', '{"version": 1, "runs": {"a": [3]}}',
     '{"version": 1, "runs": {"a": "b"}}', '{"version": 1, "runs": {"a": ["/etc"]}}',
     '{"version": 1, "runs": {"a": ["gone"]}}'],
)  # fmt: skip
def test_a_damaged_comparison_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "comparison.json").write_text(content)
    with pytest.raises(InputError):
        sdfeel.load(tmp_path)


def test_runs_that_lie_elsewhere_are_not_noted(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    note_runs(tmp_path / "here", "t", {"a": [tmp_path / "there"]})
    assert not (tmp_path / "here" / "comparison.json").exists()


def test_a_model_is_asked_for_by_name(small: Problem, tmp_path: Path) -> None:
    """A folder holds weights, not code."""
    result = sdfeel.train(small.model, small.datasets, network=small.network, **COMMON)
    result.save(tmp_path / "run")
    with pytest.raises(InputError, match="model = None: is needed: the network that was trained"):
        sdfeel.load(tmp_path / "run")
    with pytest.raises(InputError, match="is not what was trained"):
        sdfeel.load(tmp_path / "run", torch.nn.Linear(2, 77))
    with pytest.raises(InputError, match=r"holds no run\.json"):
        sdfeel.load(tmp_path)
