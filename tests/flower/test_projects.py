"""Flower projects run from their folder: what their server apps say, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_app
from flwr.app import MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, Strategy
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from projects import CLIENT, SERVER, write_project
from typer.testing import CliRunner

import sdfeel
from sdfeel import InputError
from sdfeel.cli import app as program
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.experiments.config import read_table, run_config, with_settings
from sdfeel.experiments.run import run
from sdfeel.flower.client import FlowerClient
from sdfeel.flower.modules import layout_of


def carry_out(folder: Path, *settings: str, **options: Any) -> sdfeel.Result:
    return run(run_config(with_settings(read_table(str(folder)), settings)), **options)


def values(result: sdfeel.Result) -> list[float]:
    return [float(v) for v in next(iter(result.model.state_dict().values())).flatten()]


def test_a_project_runs_as_its_server_app_says(tmp_path: Path) -> None:
    """First model, rounds, lr, its own data and metrics; nothing of a data set of ours."""
    folder = write_project(tmp_path, "plain_project")
    result = carry_out(folder)
    assert result.iterations == 3
    assert values(result) == [1.5] * 3
    history = result.history
    assert history["test_accuracy"].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert history["central_accuracy"].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert history["central_round"].tolist() == [0, 1, 2, 3]
    assert history["test_per-class_1"].tolist() == [0.0, 1.5, 3.0, 4.5]
    assert history["batch_epochs"].iloc[-1] == 2
    assert not {"train_loss", "test_loss"} & set(history.columns)
    assert Strategy.start is not None
    assert "start" not in vars(FedAvg)


def test_the_command_runs_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_project(tmp_path / "my-app", "cli_project")
    monkeypatch.chdir(folder)
    words = ["--set", "flower.run_config.num-server-rounds=2", "--set", "lr=0.25"]
    words += ["--set", "flower.node_config.place=[3, 4, 5, 6]", "--json"]
    refused = CliRunner().invoke(program, ["run", ".", *words, "--set", "engine=fast"])
    assert isinstance(refused.exception, InputError)
    assert "train in round 1" not in refused.output, "nothing was trained"
    result = CliRunner().invoke(program, ["run", ".", *words])
    assert result.exit_code == 0, (result.output, result.exception)
    assert "the 4 clients train in round 1" in result.output
    assert (folder / "runs" / "my-app-1" / "model.safetensors").exists()
    about = json.loads((folder / "runs" / "my-app-1" / "run.json").read_text())
    assert about["flower"]["server"] == "cli_project.server_app:app"
    rows = (folder / "runs" / "my-app-1" / "metrics.csv").read_text().splitlines()
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    assert len(rows) == 4
    assert float(last["batch_rate"]) == 0.25, "a rate that the user sets comes before the app's"
    assert float(last["batch_place"]) == pytest.approx((3 + 2 * 4 + 3 * 5 + 4 * 6) / 10)
    again = CliRunner().invoke(program, ["run", ".", "--out", "runs/my-app-1", "--resume", *words])
    assert again.exit_code == 0, (again.output, again.exception)


def test_the_first_model_is_a_function_of_the_seed(tmp_path: Path) -> None:
    """So that a run can be resumed; configs that a strategy draws as well."""
    server = SERVER.replace("STRATEGY", "Drawing()").replace(
        "np.zeros(3, dtype=np.float32)", "np.random.rand(3).astype(np.float32)"
    )
    server = server.replace("\napp = ", f"{DRAWING}\napp = ", 1)
    folder = write_project(tmp_path / "project", "drawing_project", server=server)
    straight = carry_out(folder)
    options = {"out": tmp_path / "run"}
    carry_out(folder, "flower.run_config.num-server-rounds=3", "steps=2", **options)
    resumed = carry_out(folder, **options, resume=True)
    assert values(resumed) == values(straight)
    assert values(carry_out(folder, "seed=1")) != values(straight)


DRAWING = """
class Drawing(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        config["lr"] = float(np.random.rand())
        return super().configure_train(server_round, arrays, config, grid)
"""


def test_a_project_is_not_planned_with_data_of_ours(tmp_path: Path) -> None:
    folder = write_project(tmp_path, "planned_project")
    result = CliRunner().invoke(program, ["plan", str(folder), "--budget", "5"])
    assert isinstance(result.exception, InputError)
    assert "an app trains by itself, and gradients are needed here" in str(result.exception)


def test_settings_change_a_project(tmp_path: Path) -> None:
    folder = write_project(tmp_path, "changed_project")
    result = carry_out(folder, "scheme=sd-feel", "schedule.tau1=4", "steps=8")
    assert result.iterations == 8
    assert values(result) == [1.0] * 3


def test_a_misspelt_run_config_is_refused(tmp_path: Path) -> None:
    """Flower refuses it as well: the app would run with what it says itself."""
    folder = write_project(tmp_path, "misspelt_project")
    with pytest.raises(InputError, match=r"rouds = 2: unknown key.* mean 'num-server-rounds'"):
        carry_out(folder, "flower.run_config.num-server-rouds=2")
    with pytest.raises(InputError, match=r"^flower\.run_config\.a\.b = 2: .*known: "):
        carry_out(folder, "flower.run_config.a.b=2")


ADJUSTING = """
class Adjusting(FedAvg):
    def configure_train(self, server_round, arrays, config, grid):
        if server_round == 2:
            config["lr"] = 0.25
        return super().configure_train(server_round, arrays, config, grid)

    def start(self, **options):
        raise AssertionError("not called")
"""


def test_a_strategy_of_its_own_says_each_rounds_config(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it has a `start` of its own, which would do other things first."""
    server = SERVER.replace("STRATEGY", "Adjusting()").replace(
        "\napp = ", f"{ADJUSTING}\napp = ", 1
    )
    folder = write_project(tmp_path, "adjusting_project", server=server)
    assert carry_out(folder).history["batch_rate"].tolist()[1:] == [0.5, 0.25, 0.25]
    assert "Adjusting is carried out as FedAvg, without its own `start`" in caplog.text


LEGACY_CLIENT = """
import numpy as np
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp


class Client(NumPyClient):
    def __init__(self, number):
        self.number = number

    def get_parameters(self, config):
        return [np.full(2, 7.0 + self.number)]

    def fit(self, parameters, config):
        return [p + config["rate"] for p in parameters], 5, {"rate": config["rate"], "note": "x"}


app = ClientApp(lambda context: Client(context.node_config["partition-id"]).to_client())
"""
LEGACY_SERVER = """
from flwr.app import Context
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


class Noting(FedAvg):
    def aggregate_fit(self, *args):
        raise AssertionError("not called")


def server_fn(context):
    strategy = Noting(
        on_fit_config_fn=lambda number: {"rate": number},
        evaluate_fn=lambda number, arrays, config: (float(arrays[0][0]), {"best": number}),
        fraction_evaluate=0.0,
        fraction_fit=0.5,
    )
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=2))


app = ServerApp(server_fn=server_fn)
"""


def test_a_legacy_project(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """on_fit_config_fn, evaluate_fn, the first model from a client; what differs is said."""
    folder = write_project(tmp_path, "legacy_project", LEGACY_CLIENT, LEGACY_SERVER)
    result = carry_out(folder, "schedule.participation=1.0")
    assert values(result) == [10.0, 10.0]
    assert result.history["central_loss"].tolist() == [7.0, 8.0, 10.0]
    assert result.history["central_best"].tolist() == [0, 1, 2]
    assert "Noting is carried out as FedAvg, without its own `aggregate_fit`" in caplog.text
    assert "takes part in a round with probability 0.5" in caplog.text
    assert "'note' of the app's `train` is not kept: it is no number" in caplog.text


def test_fedavg_is_flowers() -> None:
    """Three rounds, averaged by Flower's own function."""
    torch.manual_seed(3)
    initial = torch_app.Net().state_dict()
    names = [(name, np.dtype("float32")) for name in initial]
    module = torch_app.Net()
    module.load_state_dict(initial)
    layout = layout_of(module, names)
    model = ParameterLayout.of(module).vector(module).numpy()
    for number in (1, 2, 3):
        replies = []
        for client in range(6):
            app = FlowerClient(torch_app.app, layout, "", client, 6, {"local-epochs": 3})
            answer = app.train(model, number, {"lr": 0.1})
            metrics = MetricRecord({"num-examples": answer.examples})
            replies.append(RecordDict({"arrays": layout.record(answer.model), "metrics": metrics}))
        model = layout.vector(aggregate_arrayrecords(replies, "num-examples"), model)
    result = sdfeel.train(
        flower=torch_app.app,
        initial=initial,
        network=sdfeel.Network.ring(3, 2),
        scheme="fedavg",
        schedule=sdfeel.Schedule(3, 1, 1),
        rounds=3,
        lr=0.1,
        run_config={"local-epochs": 3},
    )
    np.testing.assert_allclose(result.servers[0].numpy(), model, rtol=1e-5, atol=1e-6)


def test_fractions_are_participation(tmp_path: Path) -> None:
    folder = write_project(tmp_path, "fraction_project", strategy="FedAvg(fraction_train=0.5)")
    table = read_table(str(folder))
    network = {"network.servers": 1, "network.clients_per_server": 4}
    from sdfeel.flower.simulate import planned

    config = run_config(with_settings(table, [f"{k}={v}" for k, v in network.items()]))
    settings, plan = planned(config.settings, config.flower.server or "", folder, 4)
    assert settings.participation == 0.5
    assert plan.rounds == 3


def test_server_momentum_is_flowers(tmp_path: Path) -> None:
    """w <- w + eta v, v <- beta v + Delta, with Delta the rate of a round."""
    strategy = "FedAvgM(server_learning_rate=0.5, server_momentum=0.8)"
    folder = write_project(tmp_path, "momentum_project", strategy=strategy)
    v, w = 0.0, 0.0
    for _ in range(3):
        v = 0.8 * v + 0.5
        w += 0.5 * v
    np.testing.assert_allclose(values(carry_out(folder)), w, rtol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("FedAdam()", 'nearest here: --set server_optimizer.name="fedadam"'),
        ("FedMedian()", 'nearest here: --set averaging_rule.name="median"'),
        ("QFedAvg(client_learning_rate=1.0)", "this strategy's averaging is not carried out"),
        ("FedXgbBagging()", "trees are put together and not averaged"),
    ],
)
def test_other_strategies_are_refused_with_what_is_nearest(
    tmp_path: Path, strategy: str, said: str
) -> None:
    name = f"refused_{strategy.partition('(')[0].lower()}"
    folder = write_project(tmp_path, name, client=CLIENT + "\nCALLS = []", strategy=strategy)
    with pytest.raises(InputError, match=said):
        carry_out(folder)
    if strategy == "FedMedian()":  # and with the user's choice it runs
        assert values(carry_out(folder, "averaging_rule.name=median")) == [1.5] * 3


OWN_MESSAGES = """
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    nodes = list(grid.get_node_ids())
    grid.send_and_receive([nodes])
"""
SECURE = """
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerApp, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

app = ServerApp()

@app.main()
def main(grid, context):
    context = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=FedAvg())
    workflow = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2)
    DefaultWorkflow(fit_workflow=workflow)(grid, context)
"""
IDLE = (
    "from flwr.serverapp import ServerApp\napp = ServerApp()\napp.main()(lambda grid, context: 0)"
)


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (OWN_MESSAGES, r"uses `grid.send_and_receive` before it starts a strategy"),
        (SECURE, "SecAggPlusWorkflow.*secure aggregation needs messages"),
        (IDLE, "ends without `strategy.start"),
        ("app = print", "must be a flwr.serverapp.ServerApp"),
    ],
    ids=["messages", "secure", "idle", "no app"],
)
def test_server_apps_that_start_no_strategy(
    tmp_path: Path, server: str, said: str, request: pytest.FixtureRequest
) -> None:
    package = f"server_{request.node.callspec.id.replace(' ', '_')}"
    folder = write_project(tmp_path, package, server=server)
    with pytest.raises(InputError, match=said):
        carry_out(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.poetry]", "clientapp = None: is needed"),
        ("tool = 3", "tool = 3: a table"),
    ],
)
def test_what_is_no_project(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match=said):
        read_table(str(tmp_path))
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(InputError, match="no Flower project"):
        read_table(str(tmp_path))


def test_the_network_of_a_project_follows_its_federation(tmp_path: Path) -> None:
    more = '[tool.flwr.federations]\ndefault = "here"\n[tool.flwr.federations.here]\n'
    folder = write_project(tmp_path, "sized", more=f"{more}options.num-supernodes = 12\n")
    file = folder / "pyproject.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("network.")))
    assert read_table(str(file))["network"] == {"servers": 3, "clients_per_server": 4}


def test_an_app_without_project_needs_a_first_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_project(tmp_path, "model_project")
    monkeypatch.chdir(folder)
    table = {"trainer": "flower:model_project.client_app:app", "steps": 4}
    with pytest.raises(InputError, match=r"model\.name = None: is needed: what makes the app's"):
        run(run_config(table))
