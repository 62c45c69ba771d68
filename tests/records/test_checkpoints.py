"""Runs that stop, and go on: bit for bit as if nothing had happened, or not at all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import InputError, RunError, Schedule
from sdfeel.records import checkpoints
from sdfeel.records.checkpoints import read_checkpoint
from sdfeel.records.folder import RunFolder
from sdfeel.simulation.listening import Progress
from sdfeel.simulation.state import State

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")

STEPS = 23


def problem() -> Problem:
    return classification((12, 5, 9, 20, 4, 7), [[0, 3], [1, 2, 4], [5]], hidden=6)


def train(out: Path | None = None, of: Problem | None = None, **options: object) -> sdfeel.Result:
    of = of or problem()
    settings = {
        "network": of.network,
        "schedule": Schedule(5, 2, 2),
        "steps": STEPS,
        "lr": 0.1,
        "batch_size": 4,
        "seed": 3,
        "participation": 0.7,
        "evaluate_every": 4,
        "engine": "vectorised",
        "out": out,
    }
    return sdfeel.train(of.model, of.datasets, **{**settings, **options})


def stop_at(iteration: int, number: int = signal.SIGINT) -> Callable[[Progress], None]:
    def signalled(progress: Progress) -> None:
        if progress.iteration == iteration:
            os.kill(os.getpid(), number)

    return signalled


def stopped_at(out: Path, number: int = signal.SIGINT, **options: object) -> int:
    """The iteration of the checkpoint that a run leaves which a signal ends."""
    # A shell ignores SIGINT for what it starts in the background, and this suite may be such.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit) as ended:
            train(out, **options)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    if number != signal.SIGINT:
        assert ended.value.code == 128 + number
    return read_checkpoint(out / "checkpoint.safetensors", None)[0].iteration


def models_of(folder: Path) -> tuple[bytes, bytes]:
    names = ("model.safetensors", "servers.safetensors")
    return tuple((folder / name).read_bytes() for name in names)  # type: ignore[return-value]


def assert_same(result: sdfeel.Result, whole: sdfeel.Result, folders: tuple[Path, Path]) -> None:
    """Two runs are the same, and so is what they leave behind."""
    assert not result.interrupted
    assert result.iterations == STEPS
    assert result.seconds == whole.seconds
    pd.testing.assert_frame_equal(result.history, whole.history, check_exact=True)
    np.testing.assert_array_equal(vector(result.model), vector(whole.model))
    assert models_of(folders[0]) == models_of(folders[1])
    metrics = [(folder / "metrics.csv").read_bytes() for folder in folders]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("engine", ["reference", "vectorised", "fast"])
@pytest.mark.parametrize(
    ("schedule", "stops"),
    [
        (Schedule(5, 2, 2), [5]),
        (Schedule(5, 2, 2), [10]),
        (Schedule(5, 2, 2), [5, 10, 15, 20]),
        (Schedule(1, 5, 2), [12]),
        (Schedule(1, 5, 2), [4]),
        (Schedule(1, 5, 2), [1, 2, 7, 19, 22]),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(
    tmp_path: Path, engine: str, schedule: Schedule, stops: list[int]
) -> None:
    """At an aggregation, an exchange, an evaluation, in the middle of a round; several times."""
    parts, own = tmp_path / "parts", {"engine": engine, "schedule": schedule}
    whole = train(tmp_path / "whole", **own)
    for number, iteration in enumerate(stops):
        options = {**own, "resume": number > 0, "on_progress": stop_at(iteration)}
        assert stopped_at(parts, **options) == iteration
    assert_same(train(parts, **own, resume=True), whole, (parts, tmp_path / "whole"))


@pytest.mark.parametrize("engine", ["reference", "vectorised", "fast"])
def test_the_history_of_an_averaging_rule_is_resumed(tmp_path: Path, engine: str) -> None:
    parts, own = tmp_path / "parts", {"engine": engine, "averaging_rule": "history-clip"}
    own["participation"] = 1.0
    whole = train(tmp_path / "whole", **own)
    assert stopped_at(parts, **own, on_progress=stop_at(10)) == 10
    tensors = read_checkpoint(parts / "checkpoint.safetensors", None)[0].tensors
    assert (tensors["servers.history-clip.norms"] > 0).any()
    assert_same(train(parts, **own, resume=True), whole, (parts, tmp_path / "whole"))


@pytest.mark.parametrize("engine", ["reference", "vectorised", "fast"])
def test_whenever_a_run_is_stopped_it_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is trained in the middle of a period is dropped, and made again."""
    is_training, asked, at, stopped_in_training = False, 0, 0, []
    plain_train = State.train

    def noting_train(*given: object) -> object:
        nonlocal is_training
        is_training = True
        try:
            return plain_train(*given)
        finally:
            is_training = False

    def stop(_: RunFolder) -> bool:
        nonlocal asked
        asked += 1
        if asked == at:
            stopped_in_training.append(is_training)
        return asked == at

    monkeypatch.setattr(State, "train", noting_train)
    monkeypatch.setattr(RunFolder, "stop", stop)
    whole = train(tmp_path / "whole", engine=engine)
    for at in np.linspace(1, asked - 1, 7).astype(int).tolist():
        asked, parts = 0, tmp_path / f"stopped-{at}"
        stopped = train(parts, engine=engine)
        assert stopped.interrupted
        assert stopped.iterations in (0, 5, 10, 15, 20)
        asked = at  # not again
        assert_same(train(parts, engine=engine, resume=True), whole, (parts, tmp_path / "whole"))
    assert any(stopped_in_training)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_after_the_period_with_a_checkpoint(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A loop over runs must not go on to the next: the call does not return."""
    before = signal.getsignal(number)
    assert stopped_at(tmp_path, number, on_progress=stop_at(5, number)) == 5
    snapshot, engine = read_checkpoint(tmp_path / "checkpoint.safetensors", None)
    assert snapshot.events == 1
    assert engine == "vectorised"
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_period_does_not_wait_for_its_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The checkpoint is that of the end of the period before."""
    batches = 0

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        nonlocal batches
        batches += outputs.requires_grad
        if batches == 50:  # six clients make 30 at most in a period
            signal.raise_signal(number)
        return torch.nn.functional.cross_entropy(outputs, targets)

    options = {"engine": "reference", "loss": loss, "participation": 1.0}
    assert stopped_at(tmp_path, number, **options) == 5
    assert 50 <= batches < 60, "the second period is not trained to its end"


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    def impatient(_: Progress) -> None:
        # To this thread: two signals that another thread takes may arrive as one.
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    asked: list[Progress] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(
                tmp_path, on_progress=lambda progress: (asked.append(progress), impatient(progress))
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(asked) == 1
    assert not (tmp_path / "checkpoint.safetensors").exists(), "the second one ends it at once"


def test_after_an_aggregation_a_checkpoint_holds_the_servers_only(tmp_path: Path) -> None:
    """10,000 clients' models would be 10,000 times the model; they equal their servers'."""
    train(tmp_path, steps=20)
    snapshot, _ = read_checkpoint(tmp_path / "checkpoint.safetensors", None)
    assert set(snapshot.tensors) == {"servers.model"}
    assert len(snapshot.tensors["servers.model"]) == 3


def test_a_finished_run_can_be_made_longer(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", steps=20)
    train(tmp_path / "parts", steps=8)
    longer = train(tmp_path / "parts", steps=20, resume=True)
    pd.testing.assert_frame_equal(longer.history, whole.history, check_exact=True)
    assert models_of(tmp_path / "parts") == models_of(tmp_path / "whole")


def test_the_time_left_counts_what_this_start_has_done(tmp_path: Path) -> None:
    """What an earlier start did took none of the time since this one."""
    train(tmp_path, steps=10)
    seen: list[Progress] = []
    train(tmp_path, steps=20, resume=True, on_progress=seen.append)
    assert seen[0].resumed == 0.5
    for progress in seen:
        pace = (progress.fraction - 0.5) / progress.elapsed
        assert progress.left == pytest.approx((1 - progress.fraction) / pace)


@pytest.mark.parametrize("steps", [20, STEPS])
def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, steps: int) -> None:
    whole = train(tmp_path, steps=steps)
    before = models_of(tmp_path)
    again = train(tmp_path, steps=steps, resume=True)
    # A shorter last period is made again: a longer run would have another one there.
    assert again.client_steps <= 6 * (steps % 5)
    pd.testing.assert_frame_equal(again.history, whole.history, check_exact=True)
    assert models_of(tmp_path) == before


def test_resume_without_a_checkpoint_begins(tmp_path: Path) -> None:
    assert train(tmp_path / "new", resume=True).iterations == STEPS


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train(tmp_path, steps=2)
    with pytest.raises(InputError, match="holds a run already") as error:
        train(tmp_path, steps=2)
    assert error.value.field == "out"


def test_auto_goes_on_with_the_engine_that_wrote_the_checkpoint(tmp_path: Path) -> None:
    """Another engine rounds differently: which is fastest today must not decide the bits."""
    train(tmp_path, engine="reference", steps=8)
    assert train(tmp_path, engine="auto", resume=True, steps=12).engine == "reference"


# What must not be gone on from.

OTHERS: dict[str, dict[str, object]] = {
    "seed": {"seed": 4},
    "lr": {"lr": 0.2},
    "batch_size": {"batch_size": 3},
    "schedule": {"schedule": Schedule(5, 2, 3)},
    "scheme": {"scheme": "hierfavg"},
    "averager": {"averager": "chebyshev"},
    "participation": {"participation": 0.8},
    "profile": {"profile": "shared-backhaul"},
    "averaging_rule": {"averaging_rule": lambda models, weights, before: models[0]},
    "loss": {"loss": lambda outputs, targets: outputs.square().mean()},
}


# What is said of the settings that differ.
CHANGES = {
    "seed": "seed was 3, is 4. Take",
    "lr": "lr was 0.1, is 0.2. Take",
    "batch_size": "batch_size was 4, is 3. Take",
    "schedule": "schedule.alpha was 2, is 3. Take",
    "scheme": "scheme was 'sd-feel', is 'hierfavg'. Take",
    "averager": "averager was 'paper', is 'chebyshev'. Take",
    "participation": "schedule.participation was 0.7, is 0.8. Take",
    "profile": "clock.profile was",
    "averaging_rule": "averaging_rule.name was 'mean', is",
    "loss": "loss was",
    "clusters": "clusters was [[0, 3], [1, 2, 4], [5]], is [[0, 2], [1, 3, 4], [5]]. Take",
    "graph": "links was",
}


@pytest.mark.parametrize("what", [*OTHERS, "data", "model", "clusters", "graph"])
def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path, what: str) -> None:
    train(tmp_path, steps=5)
    checkpoint = (tmp_path / "checkpoint.safetensors").read_bytes()
    other = problem()
    if what == "data":
        other.inputs[2][0, 0] += 1e-3
    elif what == "model":
        next(other.model.parameters()).data[0, 0] += 1e-3
    elif what == "clusters":
        other.network = sdfeel.Network([[0, 2], [1, 3, 4], [5]], "path")
    elif what == "graph":
        other.network = sdfeel.Network(other.network.clusters, "ring")
    with pytest.raises(InputError, match="belongs to another run") as error:
        train(tmp_path, of=other, steps=6, resume=True, **OTHERS.get(what, {}))
    assert CHANGES.get(what, "its settings are the same") in error.value.remedy
    assert "steps" not in error.value.remedy, "a run may be made longer"
    assert error.value.field == "checkpoint"
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == checkpoint


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("run")
    train(folder, steps=10)
    return (folder / "checkpoint.safetensors").read_bytes()


@settings(max_examples=60)
@given(data=st.data())
def test_a_checkpoint_with_any_byte_changed_is_refused(
    written: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(written) - 1))
    path = tmp_path_factory.mktemp("tampered") / "checkpoint.safetensors"
    path.write_bytes(
        written[:position] + bytes([written[position] ^ 0xFF]) + written[position + 1 :]
    )
    with pytest.raises(InputError, match="truncated, damaged or not a checkpoint"):
        read_checkpoint(path, None)


@settings(max_examples=30)
@given(data=st.data())
def test_a_truncated_checkpoint_is_refused(
    written: bytes, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("truncated") / "checkpoint.safetensors"
    path.write_bytes(written[: data.draw(st.integers(0, len(written) - 1))])
    with pytest.raises(InputError, match="truncated, damaged or not a checkpoint"):
        read_checkpoint(path, None)


def test_a_checkpoint_that_was_not_touched_is_taken(written: bytes, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(written)
    assert read_checkpoint(tmp_path / "checkpoint.safetensors", None)[0].iteration == 10


def test_a_checkpoint_of_another_version_says_so(
    written: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(written)
    monkeypatch.setattr(checkpoints, "FORMAT", "sdfeel-checkpoint-4")
    with pytest.raises(InputError, match=r"sdfeel-checkpoint-3.*another version"):
        read_checkpoint(tmp_path / "checkpoint.safetensors", None)


def test_a_damaged_checkpoint_stops_the_run_and_stays(tmp_path: Path, written: bytes) -> None:
    damaged = written[:-3]
    (tmp_path / "checkpoint.safetensors").write_bytes(damaged)
    with pytest.raises(InputError, match="another folder"):
        train(tmp_path, resume=True)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == damaged
    (tmp_path / "checkpoint.safetensors").unlink()
    (tmp_path / "checkpoint.safetensors").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_checkpoint(tmp_path / "checkpoint.safetensors", None)


@pytest.mark.parametrize("tau1", [1, 3, 5])
def test_a_loss_that_becomes_nan_leaves_the_last_good_checkpoint(tmp_path: Path, tau1: int) -> None:
    poisoned = classification((30, 30, 30, 30), [[0, 1], [2, 3]], "path")
    poisoned.inputs[2][7] = np.nan
    own = {"of": poisoned, "steps": 200, "participation": 1.0, "schedule": Schedule(tau1, 2, 2)}
    with pytest.raises(RunError, match="client 2 became nan") as error:
        train(tmp_path, **own, checkpoint_seconds=0)
    failed = int(str(error.value).split("iteration ")[1].split(";")[0])
    assert "last good checkpoint is kept" in str(error.value)
    snapshot, _ = read_checkpoint(tmp_path / "checkpoint.safetensors", None)
    assert snapshot.iteration == (failed - 1) // tau1 * tau1 > 0
    assert snapshot.tensors["servers.model"].isfinite().all()
    with pytest.raises(RunError, match=f"iteration {failed};"):
        train(tmp_path, **own, resume=True)


# kill -9

KILLED = Path(__file__).with_name("killed_run.py")


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_no_more_than_since_the_last_checkpoint(tmp_path: Path) -> None:
    """A run is killed five times, whenever, and goes on; its end is that of a run left alone."""
    done = subprocess.run(
        [sys.executable, str(KILLED), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": str(KILLED.parent.parent)},
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["kills"] == 5
    assert told["kept"] == sorted(told["kept"])  # never a step back, never a damaged file
    assert models_of(tmp_path / "killed") == models_of(tmp_path / "whole")
    metrics = [(tmp_path / name / "metrics.csv").read_bytes() for name in ("killed", "whole")]
    assert metrics[0] == metrics[1]
    assert not list((tmp_path / "killed").glob(".*.tmp"))
