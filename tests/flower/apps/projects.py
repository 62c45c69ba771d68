"""Flower projects, written into a folder: a client app, a server app and a pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

CLIENT = """
import random

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    config, node = msg.content["config"], context.node_config
    arrays = [a + config["lr"] for a in msg.content["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord(
        {
            "num-examples": 1 + node["partition-id"],
            "train_loss": 0.5,
            "rate": config["lr"],
            "epochs": context.run_config["local-epochs"],
            "place": node.get("place", -1),
        }
    )
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    value = float(msg.content["arrays"].to_numpy_ndarrays()[0].sum())
    metrics = MetricRecord({"num-examples": 2, "eval_acc": value, "per-class": [1.0, value]})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)
"""

SERVER = """
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import *

app = ServerApp()


def measure(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": float(arrays["0"].numpy().sum()), "round": server_round})


@app.main()
def main(grid: Grid, context: Context) -> None:
    arrays = ArrayRecord([np.zeros(3, dtype=np.float32)])
    strategy = STRATEGY
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        num_rounds=context.run_config["num-server-rounds"],
        evaluate_fn=measure,
    )
    raise SystemExit("nothing comes after the start")
"""

FILE = """
[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

[tool.flwr.app.config]
num-server-rounds = 3
local-epochs = 2
learning-rate = 0.5

[tool.sdfeel]
scheme = "fedavg"
schedule = {{tau1 = 1, tau2 = 1}}
network.servers = 2
network.clients_per_server = 2
"""


def write_project(
    folder: Path,
    package: str,
    client: str = CLIENT,
    server: str | None = None,
    strategy: str = "FedAvg()",
    more: str = "",
) -> Path:
    """Write a project into a folder; each test has a package of its own, as modules stay."""
    inner = folder / package
    inner.mkdir(parents=True)
    (inner / "__init__.py").write_text("")
    (inner / "client_app.py").write_text(dedent(client))
    server = SERVER.replace("STRATEGY", strategy) if server is None else server
    (inner / "server_app.py").write_text(dedent(server))
    (folder / "pyproject.toml").write_text(FILE.format(package=package) + more)
    assert f"{package}.client_app" not in sys.modules
    return folder
