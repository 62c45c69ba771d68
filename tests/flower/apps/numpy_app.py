"""A legacy Flower app: a NumPyClient, as Flower's tutorials had it. The same model and data."""

from collections import OrderedDict

import torch
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from torch_app import Net, load_data


def get_weights(net):
    return [val.cpu().numpy() for _, val in net.state_dict().items()]


def set_weights(net, parameters):
    params_dict = zip(net.state_dict().keys(), parameters)  # noqa: B905 - as people write it
    net.load_state_dict(OrderedDict({k: torch.tensor(v) for k, v in params_dict}), strict=True)


class FlowerClient(NumPyClient):
    def __init__(self, net, data, epochs):
        self.net, self.data, self.epochs = net, data, epochs

    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        inputs, targets = self.data
        optimizer = torch.optim.SGD(self.net.parameters(), lr=config["lr"])
        total = 0.0
        for _ in range(self.epochs):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return get_weights(self.net), len(inputs), {"train_loss": total / self.epochs}

    def evaluate(self, parameters, config):
        set_weights(self.net, parameters)
        inputs, targets = self.data
        with torch.no_grad():
            outputs = self.net(inputs)
        loss = torch.nn.functional.cross_entropy(outputs, targets).item()
        accuracy = (outputs.argmax(1) == targets).float().mean().item()
        return loss, len(inputs), {"accuracy": accuracy}


def client_fn(context: Context):
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(Net(), data, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)
