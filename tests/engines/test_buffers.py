"""Buffers are part of a model: a client's steps change them, and servers average them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import sdfeel
from sdfeel import InputError, Network, Schedule

RNG = np.random.default_rng(0)
DATA = [(RNG.normal(size=(6, 4)), RNG.integers(0, 3, 6)) for _ in range(3)]
PERIODS, TAU1, LR = 2, 3, 0.1


class Centred(nn.Module):
    """A running mean and a count of its own, kept in place or by assignment."""

    def __init__(self, *, assigns: bool) -> None:
        super().__init__()
        self.assigns, self.linear = assigns, nn.Linear(4, 3).double()
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and self.assigns:
            self.mean = 0.9 * self.mean + 0.1 * inputs.mean(dim=0)
            self.count = self.count + 1
        elif self.training:
            self.mean.mul_(0.9).add_(0.1 * inputs.mean(dim=0))
            self.count += 1
        return self.linear(inputs - self.mean)


class Histogram(nn.Module):
    """Counts of something, as many as there are classes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3).double()
        self.register_buffer("counts", torch.zeros(3, dtype=torch.long))
        self.register_buffer("order", torch.tensor([2, 0, 1]))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.counts = self.counts + 1
        return self.linear(inputs)[:, self.order]


def normalised(momentum: float | None) -> nn.Module:
    layers = (nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=momentum), nn.Linear(5, 3))
    return nn.Sequential(*layers).double()


MODELS = {
    "in place": lambda: Centred(assigns=False),
    "assigned": lambda: Centred(assigns=True),
    "batch normalisation": lambda: normalised(0.1),
    "cumulative batch normalisation": lambda: normalised(None),
}


def by_hand(model: nn.Module) -> dict[str, Tensor]:
    """Rounds of one server with full batches, in plain PyTorch."""
    model = copy.deepcopy(model)
    for _ in range(PERIODS):
        states = []
        for inputs, targets in DATA:
            client = copy.deepcopy(model).train()
            for _ in range(TAU1):
                client.zero_grad()
                outputs = client(torch.as_tensor(inputs))
                functional.cross_entropy(outputs, torch.as_tensor(targets)).backward()
                with torch.no_grad():
                    for parameter in client.parameters():
                        parameter.sub_(LR * parameter.grad)
            states.append(client.state_dict())
        means = {n: sum(state[n].double() for state in states) / len(states) for n in states[0]}
        model.load_state_dict({n: mean.to(states[0][n].dtype) for n, mean in means.items()})
    return model.state_dict()


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised"])
@pytest.mark.parametrize("name", MODELS)
def test_buffers_live_from_step_to_step_and_are_averaged(name: str, engine: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]()
    result = sdfeel.train(
        model,
        DATA,
        network=Network([[0, 1, 2]], []),
        schedule=Schedule(TAU1, 1, 1),
        steps=PERIODS * TAU1,
        lr=LR,
        engine=engine,
        profile="paper",
    )
    # The count decides what a cumulative mean is, and vmap does not branch on numbers.
    assert result.engine == ("loop" if engine == "vectorised" and "cumulative" in name else engine)
    expected, state = by_hand(model), result.model.state_dict()
    for key, value in expected.items():
        torch.testing.assert_close(state[key], value, rtol=1e-9, atol=1e-12)
    (count,) = [int(value) for value in state.values() if not value.is_floating_point()]
    assert count == PERIODS * TAU1


def test_a_table_of_counts_is_refused_by_its_name() -> None:
    """One that stays as it is, such as `order`, is no mistake."""
    with pytest.raises(InputError, match=r"model = 'counts': .* floating buffer"):
        sdfeel.train(Histogram(), DATA, network=Network([[0, 1, 2]], []), steps=1)
