"""Flower apps in the simulator: the native result where the mathematics is the same, the weights
and metrics that they tell, their state in checkpoints, and every way to answer wrongly.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy_app
import pytest
import sklearn_app
import torch
import torch_app
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

import sdfeel
from sdfeel import InputError, Network, RunError, Schedule

NETWORK = Network(clusters=[[0, 1], [2, 3], [4, 5]], graph=[(0, 1), (1, 2), (0, 2)])
EPOCHS = {"local-epochs": 3}


def first_model() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch_app.Net()


def run(app: Any, **options: Any) -> sdfeel.Result:
    usual = {
        "network": NETWORK,
        "schedule": Schedule(3, 2, 2),
        "averager": "metropolis",
        "lr": 0.1,
        "run_config": EPOCHS,
    }
    if "steps" not in options:
        usual["rounds"] = 4
    if "model" not in options:
        usual["initial"] = first_model().state_dict()
    return sdfeel.train(flower=app, **{**usual, **options})


@pytest.mark.parametrize("app", [torch_app.app, numpy_app.app], ids=["message", "legacy"])
def test_an_app_gives_the_native_model(app: ClientApp) -> None:
    """Three full gradients a round are three iterations: the same sums in the same order."""
    found = run(app, clients=6)
    data = [torch_app.load_data(n, 6) for n in range(6)]
    native = sdfeel.train(
        first_model(),
        data,
        network=NETWORK,
        schedule=Schedule(3, 2, 2),
        averager="metropolis",
        lr=0.1,
        steps=12,
        batch_size=100,
        engine="reference",
        evaluate_every=3,
    )
    for name, value in native.model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, rtol=1e-6, atol=1e-7)
    own = torch_app.Net()
    own.load_state_dict(found.model.state_dict())
    # The app evaluates on its training data, all of it: F(u_k) and its accuracy.
    np.testing.assert_allclose(found.history["test_loss"], native.history["train_loss"], rtol=1e-5)
    np.testing.assert_allclose(
        found.history["test_accuracy"], native.history["train_accuracy"], atol=1e-6
    )
    np.testing.assert_allclose(found.history["batch_loss"], native.history["batch_loss"], rtol=1e-5)
    assert not np.allclose(found.history["test_loss"].iloc[0], found.history["test_loss"].iloc[-1])


@pytest.mark.parametrize("scheme", ["fedbuff", "fedasync"])
def test_a_star_without_rounds_takes_an_app_as_it_takes_an_engine(scheme: str) -> None:
    """Every client makes as many steps whenever it comes, which an app can be asked for."""
    own = {"scheme": scheme, "profile": "paper-h10", "schedule": Schedule(3, 1, 1), "lr": 0.1}
    found = run(torch_app.app, **own, clients=6)
    data = [torch_app.load_data(n, 6) for n in range(6)]
    engine = {"batch_size": 100, "engine": "reference", "steps": 12}
    native = sdfeel.train(first_model(), data, network=NETWORK, **own, **engine)
    for name, value in native.model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, rtol=1e-6, atol=1e-7)
    assert found.seconds == pytest.approx(native.seconds)


@pytest.mark.parametrize(
    ("options", "rounds", "rows"),
    [
        ({"rounds": 4}, [(1, 3), (2, 3), (3, 3), (4, 3)], [0, 3, 6, 9, 12]),
        ({"steps": 12, "evaluate_every": 4}, [(1, 3), (2, 3), (3, 3), (4, 3)], [0, 6, 9, 12]),
        ({"steps": 11}, [(1, 3), (2, 3), (3, 3), (4, 2)], [0, 3, 6, 9, 11]),
        ({"scheme": "fedavg", "rounds": 2}, [(1, 6), (2, 6)], [0, 6, 12]),
        (
            {"schedule": Schedule(lambda number: 2 if number < 1 else 3, 2, 2), "rounds": 5},
            [(1, 2), (2, 2), (3, 3), (4, 3), (5, 3)],
            [0, 2, 4, 7, 10, 13],
        ),
    ],
    ids=["rounds", "rows", "shorter", "fedavg", "changing"],
)
def test_a_round_is_an_upload_period_whatever_its_length(
    options: dict[str, Any], rounds: list[tuple[int, int]], rows: list[int]
) -> None:
    app, trained, evaluated = ClientApp(), [], []

    @app.train()
    def train(msg: Message, context: Any) -> Message:
        config = msg.content["config"]
        if context.node_config["partition-id"] == 4:
            trained.append((config["server-round"], config["local-steps"]))
        return good(msg, msg.content["arrays"].to_numpy_ndarrays())

    @app.evaluate()
    def evaluate(msg: Message, context: Any) -> Message:
        if context.node_config["partition-id"] == 4:
            evaluated.append(msg.content["config"]["server-round"])
        metrics = MetricRecord({"num-examples": 5, "loss": 1.0})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    found = run(app, initial=START, processes=1, **options)
    assert trained == rounds, "its first reply says num-examples: it is not asked once more"
    assert found.history["iteration"].tolist() == rows
    ends = np.cumsum([0, *(steps for _, steps in rounds)]).tolist()
    assert evaluated == [ends.index(row) for row in rows]


def test_scikit_learn_trains_in_float64() -> None:
    found = run(sklearn_app.app, initial=sklearn_app.initial(), rounds=6)
    assert {t.dtype for t in found.model.state_dict().values()} == {torch.float64}
    assert found.history["test_accuracy"].iloc[-1] > 0.8
    assert found.history["test_logloss"].iloc[-1] < 0.5 * found.history["test_logloss"].iloc[0]
    assert "batch_logloss" in found.history


def test_a_module_is_tested_here_too_and_rounds_are_steps() -> None:
    test = torch_app.load_data(0, 6)
    found = run(torch_app.app, model=first_model(), test=test, steps=12)
    again = run(torch_app.app)
    for name, value in again.model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value)
    assert isinstance(found.model, torch_app.Net)
    # Samples that are given here count for the column; the app's own accuracy is of other data.
    loss = torch.nn.functional.cross_entropy(found.model(test[0]), test[1])
    assert found.history["test_loss"].iloc[-1] == pytest.approx(loss.item(), rel=1e-5)


def remembering(fail_at: int | None = None) -> ClientApp:
    """Adds to its model how often it was asked before, which only its state knows."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Any) -> Message:
        seen = context.state["seen"]["times"] if "seen" in context.state else 0
        number = msg.content["config"]["server-round"]
        if number == fail_at and context.node_config["partition-id"] == 3:
            raise ValueError("the disk is gone")
        context.state["seen"] = ConfigRecord({"times": seen + 1})
        arrays = [a + seen for a in msg.content["arrays"].to_numpy_ndarrays()]
        records = {
            "arrays": ArrayRecord(arrays),
            "metrics": MetricRecord({"num-examples": 5, "asked": seen}),
        }
        return Message(RecordDict(records), reply_to=msg)

    return app


START = [np.zeros((2, 3), dtype=np.float32), np.ones(1, dtype=np.float32)]


def test_state_is_kept_between_rounds_and_the_first_question_leaves_no_trace() -> None:
    found = run(remembering(), initial=START)
    assert found.model.state_dict()["0"].flatten().tolist() == [6.0] * 6  # 0 + 1 + 2 + 3
    assert found.history["batch_asked"].iloc[-1] == 3


def test_after_a_failure_the_checkpoint_is_there_and_resume_is_exact(tmp_path: Path) -> None:
    """The mended app goes on where the other failed, with the state that it had."""
    options = {"initial": START, "checkpoint_seconds": 0, "out": tmp_path / "run"}
    with pytest.raises(RunError, match=r"client 3, `train` of round 3: ValueError: the disk is"):
        run(remembering(fail_at=3), **options)
    resumed = run(remembering(), **options, resume=True)
    straight = run(remembering(), initial=START)
    assert torch.equal(resumed.servers, straight.servers)
    assert resumed.history.equals(straight.history)
    with pytest.raises(InputError, match="another run"):
        run(remembering(), **options, resume=True, run_config={"local-epochs": 4})


def answering(reply: Any) -> ClientApp:
    """Right when it is asked for num-examples at first, wrong in the second round of client 1."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Any) -> Any:
        wrong = msg.content["config"]["server-round"] == 2
        if wrong and context.node_config["partition-id"] == 1:
            return reply(msg)
        return good(msg)

    return app


def good(msg: Message, arrays: Any = None, **metrics: Any) -> Message:
    told = {"num-examples": 5} | metrics
    told = {key: value for key, value in told.items() if value is not None}
    records = {"arrays": ArrayRecord(arrays or START), "metrics": MetricRecord(told)}
    return Message(RecordDict(records), reply_to=msg)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (lambda msg: good(msg, **{"num-examples": None}), "no 'num-examples'"),
        (lambda msg: good(msg, **{"num-examples": 0}), "at least 1"),
        (lambda msg: good(msg, **{"num-examples": 2.5}), "a whole number"),
        (lambda msg: good(msg, **{"num-examples": 6}), "5 were expected"),
        (lambda msg: good(msg, [START[0].T, START[1]]), r"float32\[3, 2\], not float32\[2, 3\]"),
        (lambda msg: good(msg, START[:1]), "1 arrays came back, not 2"),
        (lambda msg: None, "not NoneType"),
        (lambda msg: Message(RecordDict(), reply_to=msg), "0 of ArrayRecord"),
        (lambda msg: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_answer_is_named_with_client_and_round(reply: Any, said: str) -> None:
    with pytest.raises(RunError, match=f"client 1, `train` of round 2.*{said}"):
        run(answering(reply), initial=START)


def test_values_that_are_not_finite_are_refused() -> None:
    nan = [np.full_like(START[0], np.nan), START[1]]
    with pytest.raises(RunError, match=r"client 1.*finite"):
        run(answering(lambda msg: good(msg, nan)), initial=START)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"flower": ClientApp()}, "no `@app.train"),
        ({"flower": "torch_app:Net"}, "must be a flwr.clientapp.ClientApp"),
        ({"flower": "torch_app:nothing"}, "cannot be imported"),
        ({"flower": "torch_app"}, "trainer"),
        ({"clients": 7}, "clients = 7"),
        ({"rounds": 0}, "rounds = 0"),
        ({"steps": 12, "rounds": 4}, "not both"),
        ({"initial": None}, "initial = None"),
        ({"initial": {"a": np.array(["x"])}}, "must be an array"),
        ({"initial": [np.array([np.inf])]}, "must be finite"),
        ({"samples": [5]}, "samples"),
        ({"client_datasets": []}, "data of its own"),
        ({"run_config": {"a": [1]}}, "run_config"),
        ({"test": START, "initial": START}, "model=Net"),
        ({"profile": "counted"}, "cannot be counted"),
        ({"engine": "fast"}, "trainers take the place"),
        ({"pace": "asynchronous"}, "pace.*steps that each client makes"),
    ],
)
def test_mistakes_are_named_before_anything_is_trained(options: Any, field: str) -> None:
    app = options.pop("flower", torch_app.app)
    with pytest.raises(InputError, match=field):
        run(app, **options)


def test_what_goes_with_an_app_is_refused_without_one() -> None:
    with pytest.raises(InputError, match="rounds = 3: goes with flower="):
        sdfeel.train(first_model(), [], network=NETWORK, rounds=3)


def test_telemetry_is_off() -> None:
    from flwr.supercore import telemetry

    run(torch_app.app, samples=torch_app.SAMPLES, rounds=2)
    assert telemetry.FLWR_TELEMETRY_ENABLED == "0"


def test_the_command_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The app's model comes from `model.name`, and is tested on the data set's test samples."""
    (tmp_path / "my_app.py").write_text(
        "from flwr.clientapp import ClientApp\n"
        "from flwr.app import Message, MetricRecord, RecordDict\n"
        "app = ClientApp()\n"
        "@app.train()\n"
        "def train(msg, context):\n"
        "    assert context.run_config['shift'] == 2\n"
        "    metrics = MetricRecord({'num-examples': 3})\n"
        "    records = {'arrays': msg.content['arrays'], 'metrics': metrics}\n"
        "    return Message(RecordDict(records), reply_to=msg)\n"
    )
    monkeypatch.chdir(tmp_path)
    from sdfeel.cli import app

    settings = [
        "trainer=flower:my_app:app", "flower.run_config.shift=2", "model.name=logistic", "steps=4",
        "network.servers=2", "network.clients_per_server=2", "evaluation.test_samples=50",
    ]  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    result = CliRunner().invoke(app, ["run", "mnist-5k", *words, "--out", "r", "--json"])
    assert result.exit_code == 0, result.output
    assert '"engine": "trainers"' in result.output
    assert "flower:my_app:app" in (tmp_path / "r" / "run.json").read_text()
    sys.modules.pop("my_app", None)
