"""Flower: its simulation on Ray, one core for each client app."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.nn import functional as F  # noqa: N812 - as everybody writes it
from workload import BATCH, RATE, STEPS, Rounds, arguments, data, network

client_app, server_app = ClientApp(), ServerApp()
chosen, notes = arguments(), Rounds()
store: list[tuple[torch.Tensor, torch.Tensor]] = []  # of a worker process, once


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train one client for a round."""
    torch.set_num_threads(1)
    if not store:
        store.extend(data(chosen.clients, chosen.samples))
    images, labels = store[int(context.node_config["partition-id"])]
    model = network()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        optimizer.zero_grad()
        F.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"num-examples": len(images)}),
    }
    return Message(RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, _context: Context) -> None:
    """Average all clients in every round."""
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=chosen.clients)

    def noted(number: int, _arrays: ArrayRecord) -> None:
        if number:  # not before the first round
            notes.ended()

    start = ArrayRecord(network().state_dict())
    strategy.start(grid, start, num_rounds=chosen.rounds, evaluate_fn=noted)
    notes.report()


if __name__ == "__main__":
    run_simulation(
        server_app,
        client_app,
        num_supernodes=chosen.clients,
        backend_config={"client_resources": {"num_cpus": 1}},
    )
