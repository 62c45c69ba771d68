"""The server app of a Flower project: with it `sdfeel run examples/flower` needs nothing else."""

import torch
from client_app import load_images, make_model
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context):
    config = context.run_config
    FedAvg(fraction_evaluate=0.5).start(
        grid=grid,
        initial_arrays=ArrayRecord(make_model().state_dict()),
        num_rounds=config["num-server-rounds"],
        train_config=ConfigRecord({"lr": config["learning-rate"]}),
        evaluate_fn=evaluate,
    )


def evaluate(_: int, arrays: ArrayRecord):
    """Test the model on the server, on the images that are for tests."""
    model = make_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    inputs, targets = load_images()
    with torch.no_grad():
        right = model(inputs[4000:]).argmax(1) == targets[4000:]
    return MetricRecord({"accuracy": right.float().mean().item()})
