from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import short_runs
import torch
from safetensors.torch import load_file
from torch import nn
from worlds import Problem, vector

import sdfeel
from sdfeel import InputError
from sdfeel.callbacks import (
    CSV,
    Callback,
    EarlyStopping,
    MLflow,
    ProgressBar,
    TensorBoard,
    WandB,
)

train = partial(short_runs.train, steps=20, evaluate_every=2, engine="reference")


class Noting(Callback):
    def __init__(self, stop_row: int = -1, stop_round: int = -1) -> None:
        self.stop_row, self.stop_round = stop_row, stop_round
        self.rows: list[int] = []
        self.rounds: list[int] = []
        self.ended: list[Any] = []
        self.closed = 0

    def on_row(self, row: Any) -> bool:
        self.rows.append(int(row["iteration"]))
        return row["iteration"] == self.stop_row

    def on_round(self, progress: Any) -> bool:
        self.rounds.append(progress.iteration)
        return progress.iteration == self.stop_round

    def close(self) -> None:
        self.closed += 1

    def on_end(self, result: Any) -> None:
        self.ended.append(result)


def test_a_callback_hears_of_every_row_and_period(small: Problem) -> None:
    noting = Noting()
    result = train(small, callbacks=[noting], steps=8, evaluate_every=4)
    assert noting.rows == [0, 4, 8]
    assert noting.rounds == [2, 4, 6, 8]
    assert noting.ended == [result]
    assert noting.closed == 1
    assert not result.stopped


@pytest.mark.parametrize("noting", [Noting(stop_row=6), Noting(stop_round=6)])
def test_to_stop_early_is_to_have_asked_for_fewer_steps(small: Problem, noting: Noting) -> None:
    stopped = train(small, callbacks=[noting], evaluate_every=3)
    short = train(small, steps=6, evaluate_every=3)
    assert stopped.stopped
    assert not stopped.interrupted
    np.testing.assert_array_equal(vector(stopped.model), vector(short.model))
    pd.testing.assert_frame_equal(stopped.history, short.history)


def test_the_last_iteration_is_evaluated_where_a_round_stops_a_run(small: Problem) -> None:
    result = train(small, callbacks=[Noting(stop_round=6)], evaluate_every=20)
    assert result.history["iteration"].tolist() == [0, 6]


def test_on_progress_may_stop_a_run(small: Problem) -> None:
    result = train(small, on_progress=lambda progress: progress.iteration >= 4)
    assert result.stopped
    assert result.iterations == 4


def test_early_stopping_counts_evaluations_without_improvement(small: Problem) -> None:
    """A rate so small that nothing improves by a tenth: the first row is the best."""
    stopping = EarlyStopping("train_loss", patience=3, least=0.1)
    result = train(small, callbacks=[stopping], lr=1e-6)
    assert result.history["iteration"].tolist() == [0, 2, 4, 6]
    # The same object starts anew in another run.
    assert train(small, callbacks=[stopping], lr=1e-6).iterations == 6


def test_larger_is_better_for_accuracies() -> None:
    stopping = EarlyStopping("test_accuracy", patience=1)
    assert not stopping.on_row({"test_accuracy": 0.1})
    assert not stopping.on_row({"test_accuracy": 0.2})
    assert stopping.on_row({"test_accuracy": 0.2})


def test_a_resumed_run_knows_what_was_before(small: Problem, tmp_path: Path) -> None:
    stopping = EarlyStopping("train_loss", patience=3, least=0.1)
    train(small, lr=1e-6, steps=4, out=tmp_path)
    again = train(small, lr=1e-6, out=tmp_path, resume=True, callbacks=[stopping])
    assert again.iterations == 6


def test_a_column_that_is_not_measured_is_named_before_training(small: Problem) -> None:
    noting = Noting()
    with pytest.raises(InputError, match="did you mean 'train_loss'"):
        train(small, callbacks=[noting, EarlyStopping("trainloss")])
    assert noting.rounds == []
    assert noting.closed == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda p: {"callbacks": [print]},
        lambda p: {"callbacks": EarlyStopping()},
        lambda p: {"callbacks": [EarlyStopping(patience=0)]},
    ],
)
def test_what_is_no_callback_is_named(small: Problem, make: Any) -> None:
    with pytest.raises(InputError):
        train(small, **make(small))


def test_what_a_callback_raises_says_where_and_leaves_the_checkpoint(
    small: Problem, tmp_path: Path
) -> None:
    class Broken(Callback):
        def on_row(self, row: Any) -> None:
            if row["iteration"] == 6:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as error:
        train(small, out=tmp_path, callbacks=[Broken()], checkpoint_seconds=0)
    assert error.value.__notes__ == ["from on_row of the callback Broken"]
    resumed = train(small, out=tmp_path, resume=True)
    np.testing.assert_array_equal(vector(resumed.model), vector(train(small).model))


def test_csv_is_the_history(small: Problem, tmp_path: Path) -> None:
    result = train(small, callbacks=[CSV(tmp_path / "rows.csv")])
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "rows.csv"), result.history)


class Recorder:
    """Stands in for a package of others: every call by its name."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Recorder:
            self.calls.append((name, args, named))
            return self

        return call

    def named(self, name: str) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
        return [call for call in self.calls if call[0] == name]


def test_tensorboard_gets_every_column(small: Problem, monkeypatch: Any, tmp_path: Path) -> None:
    board = Recorder()
    fake = SimpleNamespace(SummaryWriter=lambda folder: board)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    history = train(small, callbacks=[TensorBoard(tmp_path)]).history
    told = {(args[0], args[2]): args[1] for _, args, _ in board.named("add_scalar")}
    for row in history.to_dict("records"):
        assert told["train_loss", row["iteration"]] == row["train_loss"]
    assert ("batch_loss", 0) not in told  # not a number yet
    assert len(board.named("close")) == 1


def test_mlflow_and_wandb_get_settings_and_rows(small: Problem, monkeypatch: Any) -> None:
    flow, wandb = Recorder(), Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", flow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    history = train(small, callbacks=[MLflow(run_name="a"), WandB(project="b")]).history
    assert flow.named("start_run")[0][2] == {"run_name": "a"}
    assert flow.named("log_params")[0][1][0]["scheme"] == "sd-feel"
    assert [named["step"] for *_, named in flow.named("log_metrics")] == list(history["iteration"])
    assert len(flow.named("end_run")) == 1
    (_, _, options), *_ = wandb.named("init")
    assert (options["mode"], options["project"]) == ("offline", "b")
    losses = [args[0]["train_loss"] for _, args, _ in wandb.named("log")]
    assert losses == list(history["train_loss"])
    assert len(wandb.named("finish")) == 1


@pytest.mark.parametrize(
    ("make", "package"), [(TensorBoard, "tensorboard"), (MLflow, "mlflow"), (WandB, "wandb")]
)
def test_a_package_that_is_not_there_is_named(monkeypatch: Any, make: Any, package: str) -> None:
    for module in ("torch.utils.tensorboard", "mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"pip install {package}"):
        make()


# Results, saved and loaded.


class Tied(nn.Module):
    """Frozen, tied and counted: all that a vector of trained weights leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 3)
        self.last.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.second(self.first(x))))


@pytest.mark.parametrize("by", ["out", "save"])
def test_a_saved_model_loads_strictly(small: Problem, tmp_path: Path, by: str) -> None:
    folder = tmp_path / "run"
    torch.manual_seed(0)
    result = train(small, Tied(), **({"out": folder} if by == "out" else {}))
    if by == "save":
        assert result.save(folder) == folder
    fresh = Tied()
    fresh.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    for name, value in result.model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value), name
    loaded = sdfeel.load(folder, Tied())
    assert not loaded.model.training
    assert not result.model.training
    pd.testing.assert_frame_equal(loaded.history, result.history)
    assert loaded.summary() == pytest.approx(result.summary())
    for one, two in zip(loaded.server_models, result.server_models, strict=True):
        np.testing.assert_array_equal(vector(one), vector(two))
    np.testing.assert_array_equal(vector(loaded.client_model(1)), vector(result.server_models[1]))


def test_saved_is_what_a_run_with_a_folder_leaves(small: Problem, tmp_path: Path) -> None:
    """File for file, but for the checkpoint and the trace, which a result does not know; and what
    was loaded is saved as it was. The page draws the network of either."""
    result = train(small, out=tmp_path / "out")
    result.save(tmp_path / "saved")
    sdfeel.load(tmp_path / "saved", small.model).save(tmp_path / "again")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    left_out = {"checkpoint.safetensors", "trace.csv"}
    assert "network.json" in names
    for folder in (tmp_path / "saved", tmp_path / "again"):
        assert {path.name for path in folder.iterdir()} == names - left_out
        for name in names - left_out:
            assert (folder / name).read_bytes() == (tmp_path / "out" / name).read_bytes(), name


def test_a_saved_result_says_on_which_machine_it_was_trained(
    small: Problem, tmp_path: Path
) -> None:
    train(small).save(tmp_path / "saved")
    written = tmp_path / "saved" / "environment.json"
    told = {**json.loads(written.read_text()), "processor": "elsewhere", "engine": {"made": "so"}}
    written.write_text(json.dumps(told))
    sdfeel.load(tmp_path / "saved", small.model).save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "environment.json").read_text()) == told


def test_loading_what_does_not_fit_is_named(small: Problem, tmp_path: Path) -> None:
    result = train(small)
    result.save(tmp_path / "a")
    with pytest.raises(InputError, match="already"):
        result.save(tmp_path / "a")
    with pytest.raises(InputError, match="is needed"):
        sdfeel.load(tmp_path / "a")
    with pytest.raises(InputError, match="not what was trained"):
        sdfeel.load(tmp_path / "a", nn.Linear(7, 7))
    with pytest.raises(InputError, match="folder that a run wrote"):
        sdfeel.load(tmp_path / "nothing", small.model)
    (tmp_path / "a" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read"):
        sdfeel.load(tmp_path / "a", small.model)
    with pytest.raises(InputError, match="from 0 to 5"):
        result.client_model(6)


class Kernel:
    """Stands in for IPython in a notebook: what is shown, and drawn over."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.first: list[str] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> Kernel:
        assert raw
        assert display_id
        self.first.append(data["text/plain"])
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.shown.append(data["text/plain"])


def test_a_notebook_has_one_line_a_run_that_is_drawn_over(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel()
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=kernel))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", kernel)
    bar = ProgressBar()
    for label in ("sd-feel", "mine"):
        bar.label = label
        train(small, callbacks=[bar], steps=8)
    assert [line.split(" ")[0] for line in kernel.first] == ["sd-feel", "mine"]
    assert "iteration 8 of 8" in kernel.shown[-1]
    assert kernel.shown[-1].endswith("done")


@pytest.mark.parametrize("terminal", [True, False])
def test_elsewhere_progress_is_on_standard_error(
    small: Problem, monkeypatch: pytest.MonkeyPatch, capsys: Any, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    train(small, callbacks=[ProgressBar("mine")], steps=8)
    told = capsys.readouterr().err
    assert "mine [########################] 100%  iteration 8 of 8" in told
    assert told.startswith("\r") == terminal
    assert told.endswith("\n")
    assert not np.isnan(float(told.rpartition("loss ")[2].split(" ")[0]))


def test_a_notebook_shows_a_result(small: Problem) -> None:
    shown = train(small)._repr_html_()
    assert "<table" in shown
    assert "data:image/png;base64," in shown
