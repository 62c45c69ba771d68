from __future__ import annotations

import json
import re
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

    def on_period(self, progress: Any) -> bool:
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
        lambda p: {"callbacks": [EarlyStopping(5)]},
        lambda p: {"callbacks": [EarlyStopping(least="little")]},
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


class Fails(Callback):
    def on_row(self, row: Any) -> None:
        if row["iteration"] == 10:
            raise ZeroDivisionError


def test_tensorboard_has_every_column_of_a_resumed_run_once(small: Problem, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")  # of the extra dev
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path / "board")
    train(small, callbacks=[board], out=tmp_path / "run", steps=8)
    history = train(small, callbacks=[board], out=tmp_path / "run", resume=True).history
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    assert set(read.Tags()["scalars"]) == set(history.columns) - {"iteration"}
    for name in ("train_loss", "batch_loss"):
        told = {event.step: event.value for event in read.Scalars(name)}
        assert len(told) == len(read.Scalars(name))
        known = history.set_index("iteration")[name].dropna()  # the first row has no batch yet
        assert list(told) == list(known.index)
        np.testing.assert_allclose(list(told.values()), known, rtol=1e-6)  # it keeps float32
    hyperparameters = {
        name: value
        for event in read.summary_metadata.values()
        for name, value in _hyperparameters(event)
    }
    assert hyperparameters["schedule.tau1"] == 2
    assert hyperparameters["scheme"] == "sd-feel"


def _hyperparameters(metadata: Any) -> list[tuple[str, Any]]:
    """Settings of a session that TensorBoard's tab of hyperparameters shows."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    data = HParamsPluginData.FromString(metadata.plugin_data.content)
    values = data.session_start_info.hparams.items()
    return [(name, getattr(value, value.WhichOneof("kind"))) for name, value in values]


class Flow:
    """What mlflow 3.17.2 does with what we call: held against it by the test that follows."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []

    def active_run(self) -> Any:
        return self._open[-1] if self._open else None

    def start_run(self, run_id: Any = None, run_name: Any = None, nested: bool = False) -> None:
        if self._open and not nested:
            raise RuntimeError("already active")
        known = [run for run in self.runs if run["id"] == run_id]
        if not known:
            known = [{"id": f"#{len(self.runs)}", "name": run_name, "params": {}, "metrics": []}]
            self.runs += known
        self._open += known

    def log_params(self, params: dict[str, Any]) -> None:
        kept = self._open[-1]["params"]
        if any(kept.get(name, value) != value for name, value in params.items()):
            raise RuntimeError("changing param values is not allowed")
        kept.update(params)

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self._open[-1]["metrics"].append((step, metrics["train_loss"]))

    def end_run(self, status: str = "FINISHED") -> None:
        self._open.pop()["status"] = status

    def kept(self) -> dict[str, Any]:
        return {run["name"]: {**run, "scheme": run["params"].get("scheme")} for run in self.runs}


class RealFlow:
    """The package itself, read back."""

    def __init__(self, mlflow: Any, folder: Path) -> None:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        self.__dict__.update(vars(mlflow))
        self._client = mlflow.MlflowClient()

    def kept(self) -> dict[str, Any]:
        found = {}
        for run in self._client.search_runs(["0"]):
            told = self._client.get_metric_history(run.info.run_id, "train_loss")
            found[run.info.run_name] = {
                "id": run.info.run_id,
                "status": run.info.status,
                "scheme": run.data.params.get("scheme"),
                "metrics": [(each.step, each.value) for each in told],
            }
        return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("real", [False, True])
def test_mlflow_has_settings_rows_and_how_it_ended(
    small: Problem, monkeypatch: Any, tmp_path: Path, real: bool
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    flow: Any = RealFlow(pytest.importorskip("mlflow"), tmp_path) if real else Flow()
    monkeypatch.setitem(sys.modules, "mlflow", flow)
    history = train(small, callbacks=[MLflow(run_name="whole")]).history
    rows = list(zip(history["iteration"], history["train_loss"], strict=True))
    with pytest.raises(ZeroDivisionError):
        train(small, callbacks=[MLflow(run_name="broken"), Fails()])
    train(small, callbacks=[MLflow(run_name="begun")], out=tmp_path / "run", steps=8)
    begun = MLflow(run_id=flow.kept()["begun"]["id"])
    for callback in (MLflow(run_name="resumed"), begun):
        target = tmp_path / "run" if callback is begun else tmp_path / "other"
        train(small, out=tmp_path / "other", steps=8, resume=target.name == "run")
        train(small, callbacks=[callback], out=target, resume=True)
    flow.start_run(run_name="mine")  # with one of the user's open, ours is inside
    train(small, callbacks=[MLflow(run_name="inside")])
    flow.end_run()
    found = flow.kept()
    assert {name: each["status"] for name, each in found.items()} == {
        "whole": "FINISHED",
        "broken": "FAILED",
        "begun": "FINISHED",
        "resumed": "FINISHED",
        "mine": "FINISHED",
        "inside": "FINISHED",
    }
    for name in ("whole", "begun", "resumed", "inside"):
        assert found[name]["metrics"] == rows, name
        assert found[name]["scheme"] == "sd-feel"
    assert found["broken"]["metrics"] == [row for row in rows if row[0] <= 10]


class Biases:
    """What wandb 0.31.0 does with what we call; tried by hand in a machine without a network: two
    runs in ./wandb/offline-run-*, the failed one with its exit code."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def init(self, config: dict[str, Any], mode: str, **options: Any) -> Biases:
        assert mode == "offline"
        self.runs.append({"config": config, "options": options, "rows": {}})
        return self

    def log(self, values: dict[str, float], step: int) -> None:
        rows = self.runs[-1]["rows"]
        if not rows or step > max(rows):  # it drops what goes back
            rows[step] = values["train_loss"]

    def finish(self, exit_code: int) -> None:
        self.runs[-1]["exit_code"] = exit_code


def test_wandb_has_settings_rows_and_how_it_ended(
    small: Problem, monkeypatch: Any, tmp_path: Path
) -> None:
    biases = Biases()
    monkeypatch.setitem(sys.modules, "wandb", biases)
    history = train(small, callbacks=[WandB(project="b")]).history
    rows = dict(zip(history["iteration"], history["train_loss"], strict=True))
    train(small, out=tmp_path, steps=8)
    train(small, callbacks=[WandB()], out=tmp_path, resume=True)
    with pytest.raises(ZeroDivisionError):
        train(small, callbacks=[WandB(), Fails()])
    whole, resumed, broken = biases.runs
    assert whole["config"]["scheme"] == "sd-feel"
    assert whole["options"] == {"project": "b"}
    assert (whole["rows"], resumed["rows"]) == (rows, rows)
    assert [each["exit_code"] for each in biases.runs] == [0, 0, 1]
    assert set(broken["rows"]) == {k for k in rows if k <= 10}


@pytest.mark.filterwarnings("ignore")
def test_wandb_itself_works_without_a_network(
    small: Problem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    train(small, callbacks=[WandB(project="b")])
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"sd-feel" in written.read_bytes()


def test_every_callback_is_told_of_a_failure_and_the_error_stays(small: Problem) -> None:
    told: list[BaseException] = []

    class Told(Callback):
        def on_failure(self, problem: BaseException) -> None:
            told.append(problem)
            raise RuntimeError

    with pytest.raises(ZeroDivisionError) as error:
        train(small, callbacks=[Told(), Fails(), Told()])
    assert told == [error.value, error.value]


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


def test_to_resume_without_a_folder_is_no_silent_new_beginning(small: Problem) -> None:
    with pytest.raises(InputError, match="goes with out="):
        train(small, resume=True)
    with pytest.raises(InputError, match="path of a folder"):
        train(small, out=3)


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
    with pytest.raises(InputError, match="folder = 5"):
        sdfeel.load(5)
    (tmp_path / "a" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read"):
        sdfeel.load(tmp_path / "a", small.model)
    for client in (6, -1, 2.0, "a"):
        with pytest.raises(InputError, match="from 0 to 5"):
            result.client_model(client)
    with pytest.raises(InputError, match=r"ends with \.png, \.svg or \.pdf"):
        result.plot(tmp_path / "curves.jpg")


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
        train(small, callbacks=[bar], steps=8, evaluate_every=4)
    assert [line.split(" ")[0] for line in kernel.first] == ["sd-feel", "mine"]
    assert re.search(r"iteration 2 of 8 .* loss [\d.]+ at iteration 0", kernel.first[0])
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
