"""A Flower app with PyTorch and the message API, as Flower's quickstart has it."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

SAMPLES = [12, 19, 26, 33, 40, 47]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.fc2 = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def load_data(partition_id, num_partitions):
    assert num_partitions == len(SAMPLES)
    drawn = torch.Generator().manual_seed(100 + partition_id)
    inputs = torch.randn(SAMPLES[partition_id], 6, generator=drawn)
    return inputs, torch.randint(0, 3, (SAMPLES[partition_id],), generator=drawn)


app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    inputs, targets = load_data(
        context.node_config["partition-id"], context.node_config["num-partitions"]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=msg.content["config"]["lr"])
    running = 0.0
    for _ in range(context.run_config["local-epochs"]):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        running += loss.item()
    metrics = {
        "train_loss": running / context.run_config["local-epochs"],
        "num-examples": len(inputs),
    }
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    inputs, targets = load_data(
        context.node_config["partition-id"], context.node_config["num-partitions"]
    )
    with torch.no_grad():
        outputs = model(inputs)
    metrics = {
        "eval_loss": nn.functional.cross_entropy(outputs, targets).item(),
        "eval_acc": (outputs.argmax(1) == targets).float().mean().item(),
        "num-examples": len(inputs),
    }
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)
