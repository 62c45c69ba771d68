"""What newcomers bring: several inputs, outputs of any structure, loaders, lazy layers, losses."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import short_runs
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from worlds import Problem, vector

from sdfeel import InputError, Schedule
from sdfeel.trees import cut, joined, mapped, rows

ENGINES = ["reference", "loop", "vectorised", "auto"]
train = partial(short_runs.train, schedule=Schedule(2, 1, 1), engine="reference")


class Outputs(NamedTuple):
    logits: Tensor
    seen: dict[str, Tensor]


class Split(nn.Module):
    """The problem's linear layer, on inputs that come in two halves."""

    def __init__(self, linear: nn.Module, named: bool) -> None:
        super().__init__()
        self.linear, self.named = linear, named

    def forward(self, left: Tensor, right: Tensor) -> Any:
        x = torch.cat([left, right], dim=1)
        outputs = self.linear(x)
        return Outputs(outputs, {"x": x}) if self.named else outputs


def halves(problem: Problem, kind: str) -> list[Any]:
    found: list[Any] = []
    for dataset in problem.datasets:
        x, y = dataset.tensors
        left, right = x[:, :2], x[:, 2:]
        found.append(
            {
                "tuple": ((left, right), y),
                "dict": ({"left": left.numpy(), "right": right.numpy()}, y.numpy()),
                "tensors": TensorDataset(left, right, y),
                "items": [((a, b), int(c)) for a, b, c in zip(left, right, y, strict=True)],
            }[kind]
        )
    return found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", ["tuple", "dict", "tensors", "items"])
def test_inputs_in_two_parts_train_as_one_tensor_does(
    small: Problem, engine: str, kind: str
) -> None:
    data = halves(small, kind)
    result = train(small, Split(small.model, named=False), data, engine=engine, test=data[0])
    whole = train(small, test=small.datasets[0])
    np.testing.assert_allclose(vector(result.model), vector(whole.model), atol=1e-6)
    np.testing.assert_allclose(
        result.history["test_accuracy"], whole.history["test_accuracy"], atol=1e-9
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_outputs_of_any_structure_go_to_the_users_loss(small: Problem, engine: str) -> None:
    def loss(outputs: Outputs, targets: Tensor) -> Tensor:
        assert len(outputs.seen["x"]) == len(targets)
        return F.cross_entropy(outputs.logits, targets)

    model = Split(small.model, named=True)
    result = train(small, model, halves(small, "tuple"), engine=engine, loss=loss)
    np.testing.assert_allclose(vector(result.model), vector(train(small).model), atol=1e-6)


def test_a_structure_cut_and_joined_is_the_same() -> None:
    tree = {"a": torch.arange(7), "b": (torch.rand(7, 2), None)}
    for size in (1, 3, 7, 9):
        parts = list(cut(tree, size))
        assert [rows(part) for part in parts] == [min(size, 7 - at) for at in range(0, 7, size)]
        again = joined(parts)
        assert torch.equal(again["a"], tree["a"])
        assert torch.equal(again["b"][0], tree["b"][0])
    assert mapped(lambda tensor: tensor + 1, tree)["b"][1] is None


def test_a_loader_is_its_samples_in_their_order(small: Problem) -> None:
    """Else a run would not be a function of its seed: this loader shuffles."""
    data = [DataLoader(d, batch_size=2, shuffle=True) for d in small.datasets]
    result = train(small, data=data, test=data[0])
    expected = train(small, batch_size=2)
    np.testing.assert_array_equal(vector(result.model), vector(expected.model))
    assert result.config["batch_size"] == 2


def test_batch_size_counts_more_than_a_loader_s_own(small: Problem) -> None:
    several = [DataLoader(d, batch_size=2 + i) for i, d in enumerate(small.datasets)]
    result = train(small, data=several, batch_size=3)
    np.testing.assert_array_equal(vector(result.model), vector(train(small, batch_size=3).model))
    with pytest.raises(InputError, match=r"batch_size = \[2, 3, 4, 5, 6, 7\].*is needed"):
        train(small, data=several)


def test_a_loader_may_pick_samples_and_have_its_own_collate(small: Problem) -> None:
    def collate(items: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        x, y = zip(*items, strict=True)
        return torch.stack(x), torch.stack(y)

    loaders = [
        DataLoader(d, batch_size=3, sampler=SubsetRandomSampler([2, 0, 1]), collate_fn=collate)
        for d in small.datasets
    ]
    first = [(d.tensors[0][:3], d.tensors[1][:3]) for d in small.datasets]
    expected = train(small, data=first, batch_size=3)
    np.testing.assert_array_equal(vector(train(small, data=loaders).model), vector(expected.model))


def test_lazy_layers_are_made_for_the_data_by_the_seed(small: Problem) -> None:
    model = nn.LazyLinear(3)
    one, two = (train(small, model, seed=5) for _ in range(2))
    assert vector(one.model).shape == (15,)
    np.testing.assert_array_equal(vector(one.model), vector(two.model))


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(), partial(F.cross_entropy, label_smoothing=0.1), F.cross_entropy]
)
def test_cross_entropy_brings_accuracy_however_it_is_written(small: Problem, loss: Any) -> None:
    assert "train_accuracy" in train(small, loss=loss).history


def test_ignored_labels_do_not_count_as_wrong(small: Problem) -> None:
    """A model that is right on all others has an accuracy of 1."""
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.tensor([9.0, 0.0, 0.0]))
    data = [(d.tensors[0], torch.tensor([-100] + [0] * (len(d) - 1))) for d in small.datasets]
    history = train(small, model, data, loss=nn.CrossEntropyLoss(), lr=1e-6).history
    assert history["train_accuracy"].iloc[0] == 1.0


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.scale * outputs, targets)


def test_a_frozen_loss_module_is_fine(small: Problem) -> None:
    frozen = Scaled().requires_grad_(False)
    np.testing.assert_allclose(
        vector(train(small, loss=frozen).model), vector(train(small).model), atol=1e-6
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_gradient_hooks_of_parameters_are_called(small: Problem, engine: str) -> None:
    before = vector(small.model)
    next(small.model.parameters()).register_hook(lambda gradient: 0 * gradient)
    result = train(small, engine=engine)
    moved = vector(result.model) - before
    assert not moved[:12].any()
    assert moved[12:].all()


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "sum": ({"loss": nn.CrossEntropyLoss(reduction="sum")}, "loss", "reduction='mean'"),
    "own sum": ({"loss": lambda o, t: F.cross_entropy(o, t) * len(t)}, "loss", "batch's mean"),
    "parameters": ({"loss": Scaled()}, "loss", "part of the model"),
    "loss class": ({"loss": nn.CrossEntropyLoss}, "loss", "CrossEntropyLoss()"),
    "vector": ({"metrics": {"v": lambda o, t: o.mean(0)}}, "metrics['v']", "one number"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_be_silently_wrong_is_named(small: Problem, what: str) -> None:
    options, field, remedy = REFUSED[what]
    with pytest.raises(InputError) as error:
        train(small, **options)
    assert error.value.field == field
    assert remedy in error.value.remedy


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (lambda y: F.one_hot(y, 3), "argmax(1)"),
        (lambda y: F.one_hot(y, 3).float(), "argmax(1)"),
        (lambda y: y + 1, "subtract 1"),
        (lambda y: y[:, None], "squeeze(1)"),
    ],
)
def test_labels_in_another_form_get_the_way_to_mend_them(
    small: Problem, change: Any, remedy: str
) -> None:
    data = [(d.tensors[0], change(d.tensors[1])) for d in small.datasets]
    with pytest.raises(InputError) as error:
        train(small, data=data)
    assert remedy in error.value.remedy


def test_lists_of_numbers_are_taken_as_arrays(small: Problem) -> None:
    data = [(d.tensors[0].tolist(), d.tensors[1].tolist()) for d in small.datasets]
    expected = train(small)
    np.testing.assert_array_equal(vector(train(small, data=data).model), vector(expected.model))
