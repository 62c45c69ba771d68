"""A laboratory for tests of the planner that train in seconds."""

import numpy as np
import torch
from torch import nn

from sdfeel.network import Network
from sdfeel.planner.laboratory import TrainingLaboratory
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.simulation import Simulation

NETWORK = Network.ring(4, 2)


def world(network=NETWORK):
    """A linear model, and Gaussian classes, two to a client of the network."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(4, 20))
    data = []
    for client in range(network.clients):
        labels = rng.choice([client % 4, (client + 1) % 4], 40)
        inputs = centres[labels] + rng.normal(size=(40, 20))
        data.append((torch.from_numpy(inputs).float(), torch.from_numpy(labels)))
    torch.manual_seed(0)
    return nn.Linear(20, 4), data


def laboratory(profile="paper", **settings):
    """The world as the planner sees it."""
    model, data = world()
    given = {"lr": 0.05, "batch_size": 10, "engine": "vectorised", "profile": profile}
    made = Settings.of(given | settings)
    return TrainingLaboratory(Simulation.assemble(model, data, made, network=NETWORK))
