from __future__ import annotations

import pytest
import torch
from torch import fx, nn

from sdfeel.errors import InputError
from sdfeel.models import (
    MODELS,
    build,
    cifar_cnn,
    count_flops,
    count_flops_on,
    layers_flops,
    logistic_regression,
    mlp,
    mnist_cnn,
)

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_both_paper_networks_have_the_papers_parameters() -> None:
    assert parameters(mnist_cnn()) == 21_840
    assert parameters(cifar_cnn()) == 21_840
    per_layer = [sum(p.numel() for p in layer.parameters()) for layer in cifar_cnn()]
    assert [n for n in per_layer if n] == [684, 3_390, 17_296, 470]


def test_the_others_count_too() -> None:
    assert parameters(mlp(784, (200, 100), 10)) == 785 * 200 + 201 * 100 + 101 * 10
    assert parameters(logistic_regression(784)) == 7_850


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("paper-cnn", GREY),
        ("paper-cnn", COLOUR),
        ("mnist-cnn", GREY),
        ("cifar-cnn", COLOUR),
        ("mlp", GREY),
        ("mlp", (7,)),
        ("logistic", COLOUR),
    ],
)
def test_every_model_maps_a_batch_to_scores_and_can_be_traced(
    name: str, shape: tuple[int, ...]
) -> None:
    model = build(name, shape, 7, seed=1)
    batch = torch.ones(3, *shape)
    assert model(batch).shape == (3, 7)
    torch.testing.assert_close(fx.symbolic_trace(model)(batch), model(batch))


def test_weights_are_a_function_of_the_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build("mnist-cnn", GREY, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(17)
    again, other = build("mnist-cnn", GREY, 10, seed=3), build("mnist-cnn", GREY, 10, seed=4)
    for one, same, different in zip(*(m.parameters() for m in (first, again, other)), strict=True):
        assert torch.equal(one, same)
        assert not torch.equal(one, different)


def test_mistakes_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'mnist-cnn'"):
        build("mnist_cnn", GREY, 10, 0)
    for name in ("paper-cnn", "mnist-cnn"):
        with pytest.raises(InputError, match=r"sample shape = \(1, 32, 32\)"):
            build(name, (1, 32, 32), 10, 0)
    with pytest.raises(InputError, match="classes"):
        build("mlp", GREY, 0, 0)
    with pytest.raises(InputError, match="seed"):
        build("mlp", GREY, 10, -1)
    assert "mnist-cnn" in MODELS


def test_flops_of_a_linear_layer_are_those_on_paper() -> None:
    """Forward and the weights' gradient are one product each; a second layer adds a third."""
    assert count_flops(logistic_regression(784), GREY, 10) == 2 * (2 * 10 * 784 * 10)
    two = count_flops(mlp(784, (20,), 10), GREY, 10)
    assert two == 2 * (2 * 10 * 784 * 20) + 3 * (2 * 10 * 20 * 10)


def test_flops_of_the_paper_networks() -> None:
    def by_hand(channels: int, side: int, first: int, second: int, hidden: int) -> int:
        one, two = side - 4, (side - 4) // 2 - 4
        macs = [
            2 * one**2 * 25 * channels * first,
            3 * two**2 * 25 * first * second,
            3 * second * (two // 2) ** 2 * hidden,
            3 * hidden * 10,
        ]
        return 2 * 10 * sum(macs)

    assert count_flops(mnist_cnn(), GREY, 10) == by_hand(1, 28, 10, 20, 50)
    assert count_flops(cifar_cnn(), COLOUR, 10) == by_hand(3, 32, 9, 15, 46)


def test_counting_leaves_the_model_and_the_generator_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout()).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    before = torch.get_rng_state()
    with torch.no_grad():
        assert count_flops(model, (2, 2), 3) == 2 * (2 * 3 * 4 * 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert not model.training
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (mnist_cnn(), (3, 1, 28, 28)),
        (mlp(6, (5, 4)), (2, 6)),
        (nn.Sequential(nn.Conv2d(4, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6)),
         (2, 4, 9, 9)),
        (nn.Sequential(nn.Linear(3, 2).requires_grad_(False), nn.Linear(2, 2)), (4, 3)),
    ],
)  # fmt: skip
def test_layers_have_the_flops_that_the_counter_counts(model, shape):
    """But for groups: the counter takes the gradient of their weights for that of all pairs."""
    inputs = torch.zeros(shape)
    assert layers_flops(model, inputs) == count_flops_on(model, inputs)


def test_other_layers_are_left_to_the_counter():
    assert layers_flops(nn.LSTM(3, 2), torch.zeros(1, 2, 3)) is None
