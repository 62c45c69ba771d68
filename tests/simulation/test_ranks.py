"""Runs spread over ranks: where clusters go, and that nothing else changes."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from worlds import classification

from sdfeel.errors import InputError
from sdfeel.network import Clusters
from sdfeel.records.checkpoints import read_checkpoint
from sdfeel.simulation import ranks
from sdfeel.simulation.ranks import place
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

CONFIG = """
steps = {steps}
batch_size = 20
checkpoint_seconds = {checkpoint}
engine = "{engine}"
averager = "{averager}"

[network]
servers = 5
clients_per_server = [3, 1, 4, 2, 2]

[schedule]
tau1 = 2
tau2 = 2
alpha = 2
participation = 0.7

[correction]
name = "{correction}"

[codecs]
up = "{up}"
down = "{down}"
between = "{between}"

[model]
name = "logistic"

[data]
partition = "iid"

[evaluation]
every = 5
train_samples = 200
servers = false
"""

DEADLINE = 120.0


def start(config: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sdfeel", "run", str(config), "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE)
    return process.returncode, out.decode(), err.decode()


def write(folder: Path, steps=11, checkpoint=1000, engine="fast", **own: str) -> Path:
    path = folder / "config.toml"
    values = {"averager": "paper", "correction": "two-level", **own}
    values = {"up": "int8", "down": "float32", "between": "float32", **values}
    path.write_text(CONFIG.format(steps=steps, checkpoint=checkpoint, engine=engine, **values))
    return path


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.data())
def test_every_cluster_is_whole_on_one_rank_and_no_rank_is_idle(sizes, data):
    count = data.draw(st.integers(1, len(sizes)))
    clusters = Clusters.of_sizes(sizes)
    placement = place(clusters, count)
    assert [d for servers in placement.servers for d in servers] == list(range(len(sizes)))
    assert all(placement.servers)
    for servers, clients in zip(placement.servers, placement.clients, strict=True):
        assert list(clients) == [i for d in servers for i in clusters.members[d]]


def test_more_ranks_than_clusters_is_a_mistake():
    with pytest.raises(InputError, match="ranks"):
        place(Clusters.of_sizes([2, 2]), 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "counts", "own"),
    [
        ("fast", (1, 2, 4), {"down": "int4", "between": "int8"}),
        ("vectorised", (1, 2), {"averager": "all-reduce", "correction": "mtgc", "up": "int4"}),
        ("loop", (1, 2), {"correction": "none", "up": "float32"}),
        (
            "fast",
            (1, 2, 4),
            {"correction": "none", "up": "int4", "down": "int8", "pace": "asynchronous"},
        ),
    ],
)
def test_any_number_of_ranks_gives_the_same_run(tmp_path, engine, counts, own):
    """Uneven clusters, participation below 1, and an end in the middle of a period (11 of 2)."""
    own = dict(own)
    pace = own.pop("pace", "synchronous")
    config = write(tmp_path, engine=engine, **own)
    more = ["--set", f"pace.name={pace}", "--set", "clock.profile=paper-h10", "--json"]
    running = [start(config, tmp_path / str(n), "--ranks", str(n), *more) for n in counts]
    for status, out, err in [finish(process) for process in running]:
        assert status == 0, err
        assert json.loads(out)["iterations"] >= 11  # by turns: where the slowest cluster passes it
    models = [load_file(tmp_path / str(n) / "servers.safetensors")["servers"] for n in counts]
    tables = [pd.read_csv(tmp_path / str(n) / "metrics.csv") for n in counts]
    for several, table in zip(models[1:], tables[1:], strict=True):
        assert (several == models[0]).all(), "the order of sums must not depend on the ranks"
        # Losses over training samples are means of ranks' means: rounded in another order.
        pd.testing.assert_frame_equal(table, tables[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_and_the_next_start_goes_on(tmp_path):
    config = write(tmp_path, steps=10**7, checkpoint=0)
    job = start(config, tmp_path / "run", "--ranks", "2")
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    _wait(lambda: checkpoint.exists() or job.poll() is not None)
    os.kill(_children(job.pid)[1], signal.SIGKILL)
    killed = time.monotonic()
    status, _, err = finish(job)
    assert time.monotonic() - killed < 30
    assert status == 1
    assert "was killed" in err
    assert "--resume" in err
    steps = f"steps={read_checkpoint(checkpoint, None)[0].iteration + 20}"
    again = start(config, tmp_path / "run", "--set", steps, "--ranks", "2", "--resume")
    straight = start(config, tmp_path / "straight", "--set", steps, "--set", "checkpoint_seconds=9")
    for status, _, err in (finish(again), finish(straight)):
        assert status == 0, err
    one, other = (load_file(tmp_path / n / "servers.safetensors") for n in ("run", "straight"))
    assert (one["servers"] == other["servers"]).all()


@pytest.mark.slow
def test_ctrl_c_stops_all_ranks_with_a_checkpoint(tmp_path):
    config = write(tmp_path, steps=10**7)
    job = start(config, tmp_path / "run", "--ranks", "2")
    metrics = tmp_path / "run" / "metrics.csv"
    _wait(lambda: metrics.exists() or job.poll() is not None)
    job.send_signal(signal.SIGINT)
    status, _, err = finish(job)
    assert status == 130, err
    assert "--resume" in err
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()


def test_a_rank_holds_the_data_of_its_own_clients_and_lets_go_of_the_rest(monkeypatch):
    """The argument once kept all of it alive."""
    monkeypatch.setattr(ranks, "join", lambda: (1, 2))
    world = classification((12, 5, 9, 20, 4, 7), [[0, 3], [1, 2, 4], [5]], "path")
    datasets = world.datasets
    watched = [weakref.ref(dataset) for dataset in datasets]
    held = Simulation.assemble(
        world.model, datasets, Settings.of({"steps": 1}), network=world.network
    )
    assert held.problem.client_ids.tolist() == [1, 2, 4, 5]
    assert held.problem.data.samples.tolist() == [5, 9, 4, 7]
    assert len(held.evaluation.train[0]) == 25
    del datasets
    gc.collect()
    assert [one() for one in watched] == [None] * 6
    rows = sum(len(t) for t in (held.problem.data.inputs, held.problem.data.targets))
    assert rows == 2 * 25


def _wait(condition) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.02)


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]
