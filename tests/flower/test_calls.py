"""Calls of apps: in processes, with generators of their own, and with what they report."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import ClientApp as LegacyApp
from flwr.clientapp import ClientApp

import sdfeel
from sdfeel import InputError, Network, RunError, Schedule
from sdfeel.flower.arrays import Piece
from sdfeel.flower.generators import seeded

NETWORK = Network(clusters=[[0, 1], [2, 3], [4, 5]], graph=[(0, 1), (1, 2), (0, 2)])
START = [np.zeros((2, 3), dtype=np.float32), np.ones(1, dtype=np.float32)]


def run(app: Any, **options: Any) -> sdfeel.Result:
    usual = {
        "network": NETWORK,
        "schedule": Schedule(3, 2, 2),
        "averager": "metropolis",
        "rounds": 4,
        "initial": START,
        "lr": 0.1,
    }
    return sdfeel.train(flower=app, **{**usual, **options})


def app_of(train: Any, evaluate: Any = None) -> ClientApp:
    """An app that adds to its model what `train(context, config)` gives, as number or metrics."""
    app = ClientApp()

    @app.train()
    def _(msg: Message, context: Any) -> Message:
        answer = train(context, msg.content["config"])
        metrics = answer if isinstance(answer, dict) else {}
        added = 0.0 if metrics else float(answer)
        arrays = {
            name: Array(np.asarray(array.numpy() + added, dtype=array.dtype))
            for name, array in msg.content["arrays"].items()
        }
        metrics_record = MetricRecord({"num-examples": 5, **metrics})
        return Message(
            RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics_record}), reply_to=msg
        )

    if evaluate is not None:

        @app.evaluate()
        def _(msg: Message, context: Any) -> Message:
            metrics_record = MetricRecord({"num-examples": 5, **evaluate(context)})
            return Message(RecordDict({"metrics": metrics_record}), reply_to=msg)

    return app


def draw(*_: Any) -> float:
    """Draw from all three generators, as apps that shuffle do."""
    return random.random() + np.random.rand() + float(torch.rand(()))  # noqa: NPY002, S311


def shuffling(fail_at: int | None = None) -> ClientApp:
    def train(context: Any, config: Any) -> float:
        if config["server-round"] == fail_at and context.node_config["partition-id"] == 3:
            raise ValueError("the disk is gone")
        return draw()

    return app_of(train, lambda _: {"drawn": draw()})


def test_a_resumed_run_is_the_uninterrupted_one_for_apps_that_shuffle(tmp_path: Path) -> None:
    options = {"checkpoint_seconds": 0, "out": tmp_path / "run"}
    with pytest.raises(RunError, match="the disk is gone"):
        run(shuffling(fail_at=3), **options)
    draw()
    resumed = run(shuffling(), **options, resume=True)
    straight = run(shuffling())
    assert torch.equal(resumed.servers, straight.servers)
    assert resumed.history.equals(straight.history)
    other = run(shuffling(), seed=1)
    assert not torch.equal(other.servers, straight.servers)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_no_number_depends_on_the_processes(processes: int) -> None:
    result = run(shuffling(), processes=processes)
    assert torch.equal(result.servers, run(shuffling(), processes=6).servers)


def test_each_client_and_round_draws_numbers_of_its_own() -> None:
    drawn = []
    for numbers in ((0, 0, 1), (0, 1, 1), (0, 0, 2), (1, 0, 1)):
        with seeded(*numbers):
            drawn.append(draw())
        with seeded(*numbers):
            assert draw() == drawn[-1]
    assert len(set(drawn)) == 4


def test_the_users_generators_are_left_alone() -> None:
    before = random.getstate()[1], torch.get_rng_state()
    run(shuffling(), processes=1)
    assert random.getstate()[1] == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_clients_train_in_processes_that_end_with_the_run() -> None:
    app = app_of(lambda context, _: {"pid": os.getpid(), "threads": torch.get_num_threads()})
    result = run(app, processes=2, network=Network(clusters=[[0], [1]], graph=[(0, 1)]))
    assert os.getpid() not in (result.history["batch_pid"] * 2).tolist()
    assert not multiprocessing.active_children()
    alone = run(app, processes=1)
    assert alone.history["batch_pid"].iloc[-1] == os.getpid()


def test_an_app_may_have_processes_of_its_own() -> None:
    def train(context: Any, config: Any) -> float:
        loader = torch.utils.data.DataLoader([1.0, 2.0], num_workers=1)
        return sum(float(batch) for batch in loader)

    network = Network(clusters=[[0], [1]], graph=[(0, 1)])
    result = run(app_of(train), processes=2, rounds=1, network=network)
    assert float(result.servers[0][0]) == 3.0


def test_a_process_that_dies_is_named() -> None:
    def train(context: Any, config: Any) -> float:
        if config["server-round"] == 2 and context.node_config["partition-id"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0.0

    with pytest.raises(RunError, match="process of the Flower app ended with status -9"):
        run(app_of(train), processes=2)
    assert not multiprocessing.active_children()


def test_a_client_always_comes_to_the_same_process() -> None:
    """What an app keeps in memory of its own is where it left it."""
    seen: dict[int, int] = {}

    def train(context: Any, config: Any) -> dict[str, Any]:
        number = context.node_config["partition-id"]
        seen[number] = seen.get(number, 0) + 1
        return {"seen": seen[number]}

    result = run(app_of(train), processes=4)
    assert result.history["batch_seen"].tolist()[1:] == [1, 2, 3, 4]


def test_processes_are_refused_where_they_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfeel.flower.simulate.why_here", lambda: "jax has threads of its own")
    with pytest.raises(InputError, match=r"flower.processes = 2.*jax has threads"):
        run(shuffling(), processes=2)
    run(shuffling(), rounds=1)  # by default it does without


def test_a_reply_is_not_asked_for_twice(tmp_path: Path) -> None:
    """Also where the run is resumed, and except where the first model that it gets is another."""
    calls: list[tuple[int, int]] = []

    def train(context: Any, config: Any) -> float:
        calls.append((context.node_config["partition-id"], config["server-round"]))
        context.state["seen"] = ConfigRecord({"times": config["server-round"]})
        return 1.0

    app = app_of(train)
    run(app, processes=1, out=tmp_path / "run", rounds=2)
    once = [(client, number) for number in (1, 2) for client in range(6)]
    assert sorted(calls) == sorted(once)
    calls.clear()
    run(app, processes=1, out=tmp_path / "run", rounds=3, resume=True)
    assert sorted(calls) == [(client, 3) for client in range(6)]
    calls.clear()
    run(app, processes=1, rounds=1, samples=[5] * 6)
    assert len(calls) == 6


def test_who_takes_no_part_in_round_1_forgets_that_it_was_asked() -> None:
    def train(context: Any, config: Any) -> dict[str, Any]:
        times = context.state["seen"]["times"] + 1 if "seen" in context.state else 1
        context.state["seen"] = ConfigRecord({"times": times})
        return {"times": times, "round": config["server-round"]}

    options = {"participation": 0.3, "rounds": 6, "seed": 4}
    first, second = (run(app_of(train), samples=s, **options) for s in (None, [5] * 6))
    assert first.history.equals(second.history)
    assert first.history["batch_times"].max() < 6


def test_lists_are_kept_and_what_is_no_number_is_named(caplog: pytest.LogCaptureFixture) -> None:
    metrics = {"per-class": [1.0, 2.5], "long": [1.0] * 101, "inf": float("inf")}
    result = run(app_of(lambda *_: metrics, lambda _: {"per-class": [3.0, 4.0]}), rounds=2)
    assert result.history["batch_per-class_1"].iloc[-1] == 2.5
    assert result.history["test_per-class_0"].iloc[-1] == 3.0
    assert caplog.text.count("'long' of the app's `train` is not kept: it is a list of 101") == 1
    assert caplog.text.count("'inf' of the app's `train` is not kept: it is not finite") == 1


def test_an_apps_metrics_stand_beside_those_of_samples_given_here() -> None:
    torch.manual_seed(0)
    model, test = torch.nn.Linear(2, 2), (torch.randn(8, 2), torch.arange(8) % 2)
    app = app_of(lambda *_: 0.0, lambda _: {"accuracy": 0.123, "loss": 77.0})
    row = run(app, model=model, initial=None, test=test, rounds=1).history.iloc[-1]
    assert row["app_accuracy"] == pytest.approx(0.123)
    assert row["app_loss"] == 77.0
    assert row["test_accuracy"] in {n / 8 for n in range(9)}
    assert row["test_loss"] < 5


def test_node_config_of_each_client() -> None:
    app = app_of(lambda context, _: {"place": context.node_config["place"]})
    result = run(app, node_config={"place": [10, 20, 30, 40, 50, 60], "fast": True}, rounds=1)
    assert result.history["batch_place"].iloc[-1] == 35
    result = run(app, node_config=[{"place": n} for n in range(6)], rounds=1)
    assert result.history["batch_place"].iloc[-1] == 2.5
    with pytest.raises(InputError, match=r"node_config\['place'\].*one for each of 6 clients"):
        run(app, node_config={"place": [1, 2]})
    with pytest.raises(InputError, match="a table for each of 6 clients"):
        run(app, node_config=[{}] * 5)


def test_ranks_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sdfeel.flower.simulate.join", lambda: (0, 2))
    with pytest.raises(InputError, match="ranks = 2: a Flower app runs on one rank"):
        run(shuffling())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pace": "asynchronous", "schedule": Schedule(3, 1, 1)}, "pace.*steps that each client"),
        ({"correction": "clients"}, "correction.*gradients of their own"),
        ({"engine": "fast"}, "engine.*trainers take the place"),
        ({"optimizer": sdfeel.Momentum(0.9)}, "optimizer.*with trainers that is their business"),
        ({"profile": "counted"}, "profile.*FLOPs of an app cannot be counted"),
    ],
    ids=["pace", "correction", "engine", "optimizer", "profile"],
)
def test_settings_are_refused_before_an_app_is_asked(options: Any, said: str) -> None:
    calls: list[int] = []
    app = app_of(lambda *_: calls.append(1) or 0.0)
    with pytest.raises(InputError, match=said):
        run(app, processes=1, **options)
    assert not calls


def test_statistics_of_batch_norm_are_spoken_of_once(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    result = run(app_of(lambda *_: 1.0), initial=model.state_dict(), rounds=2)
    assert caplog.text.count("running means and variances are averaged like weights") == 1
    state = result.model.state_dict()
    assert state["1.num_batches_tracked"] == 2
    assert torch.equal(state["1.running_mean"], torch.full((3,), 2.0))


def test_a_counter_between_two_numbers_is_rounded() -> None:
    piece = Piece("batches", "int64", (), start=1)
    assert piece.array(np.array([0.0, 2.9999, 0.0], dtype=np.float32)).numpy() == 3


def secagg_mod(msg: Any, context: Any, call: Any) -> Any:
    return call(msg, context)


def querying() -> ClientApp:
    app = ClientApp()
    app.query()(lambda msg, context: msg)
    return app


def vertical() -> ClientApp:
    app = ClientApp()
    app.query("embed")(lambda msg, context: msg)
    app.train("gradients")(lambda msg, context: msg)
    return app


def secure(kind: str) -> Any:
    if kind == "legacy":
        return LegacyApp(client_fn=lambda context: None, mods=[secagg_mod])
    app = ClientApp(mods=[secagg_mod] if kind == "app" else [])
    app.train(mods=[] if kind == "app" else [secagg_mod])(lambda msg, context: msg)
    return app


@pytest.mark.parametrize(
    ("app", "said"),
    [
        (querying(), "it answers `query`, and here clients train a model"),
        (vertical(), "but `query.embed` and `train.gradients`: a server app of its own asks"),
        (secure("legacy"), "uses `secagg_mod`: secure aggregation needs messages"),
        (secure("app"), "uses `secagg_mod`"),
        (secure("function"), "uses `secagg_mod`"),
    ],
    ids=["query", "vertical", "legacy", "app", "function"],
)
def test_apps_that_cannot_be_carried_out(app: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(app)
