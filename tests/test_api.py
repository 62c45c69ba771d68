from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import short_runs
import torch
from short_runs import train
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from worlds import Problem, classification, vector

import sdfeel
from sdfeel import ClientData, InputError, Network, Schedule, load_profile
from sdfeel.api import NegativeMixingWarning, RoundingWarning
from sdfeel.data import partition

quiet = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


# What a user gets.


def test_the_call_of_the_readme() -> None:
    """Fifty clients on a ring of ten, the arguments by their names."""
    problem = classification([12] * 50, [[0]], seed=1)
    result = sdfeel.train(
        problem.model,
        problem.datasets,
        network=Network.ring(servers=10, clients_per_server=5),
        schedule=Schedule(tau1=2, tau2=1, alpha=5),
        scheme="sd-feel",
        steps=40,
        lr=0.1,
        batch_size=10,
        seed=0,
        profile="paper",
    )
    assert isinstance(result.model, nn.Module)
    assert len(result.server_models) == 10
    assert isinstance(result.history, pd.DataFrame)
    assert result.history["train_loss"].iloc[-1] < result.history["train_loss"].iloc[0]
    assert result.seconds == pytest.approx(20 * _round(result), rel=1e-9)


def _round(result: sdfeel.Result) -> float:
    bits = 32 * sum(p.numel() for p in result.model.parameters())
    return 2 * 0.01384 + bits / 5e6 + 5 * bits / 50e6


def test_the_given_model_is_not_changed(small: Problem) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(), nn.Linear(6, 3))
    model[1].eval()  # its own business
    before = copy.deepcopy(model.state_dict())
    result = train(small, model)
    assert result.model is not model
    assert model.training
    assert not model[1].training
    assert all(parameter.grad is None for parameter in model.parameters())
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    moved = dict(result.model.named_parameters())
    assert any(not torch.equal(moved[key], before[key]) for key in moved)


def test_models_of_a_result_are_independent(small: Problem) -> None:
    result = train(small)
    with torch.no_grad():
        for parameter in result.model.parameters():
            parameter.zero_()
    assert all(np.abs(vector(model)).max() > 0 for model in result.server_models)
    mean = sum(
        share * vector(model)
        for share, model in zip(
            small.network.with_samples(small.samples).shares.cluster,
            result.server_models,
            strict=True,
        )
    )
    np.testing.assert_allclose(vector(train(small).model), mean, atol=1e-6)


def test_a_float64_model_trains_in_float64(small: Problem) -> None:
    result = train(small, small.model.double())
    assert {p.dtype for p in result.model.parameters()} == {torch.float64}
    assert {p.dtype for m in result.server_models for p in m.parameters()} == {torch.float64}


def test_the_same_seed_gives_the_same_run_and_another_another(small: Problem) -> None:
    one, two, other = (train(small, seed=seed, batch_size=3) for seed in (1, 1, 2))
    np.testing.assert_array_equal(vector(one.model), vector(two.model))
    assert not np.array_equal(vector(one.model), vector(other.model))


def test_history_holds_test_metrics_and_the_spread_over_servers(small: Problem) -> None:
    test = TensorDataset(torch.randn(20, 4), torch.randint(0, 3, (20,)))
    history = train(small, test=test).history
    expected = {
        "iteration", "seconds", "train_loss", "train_accuracy", "test_loss", "test_accuracy",
        "disagreement", "batch_loss", "idle_share",
    }  # fmt: skip
    for metric in ("loss", "accuracy"):
        expected |= {f"server_{metric}_{which}" for which in ("min", "mean", "max")}
    assert set(history.columns) == expected
    assert (history["server_loss_min"] <= history["server_loss_mean"]).all()
    assert (history["server_loss_mean"] <= history["server_loss_max"]).all()
    without = train(small, test=test, evaluate_servers=False).history
    assert not [column for column in without if column.startswith("server_")]


def test_train_loss_is_that_of_the_weighted_mean_on_all_clients_data(small: Problem) -> None:
    result = train(small, train_samples=None)
    inputs, targets = map(np.concatenate, (small.inputs, small.targets))
    with torch.no_grad():
        outputs = result.model(torch.from_numpy(inputs))
        loss = functional.cross_entropy(outputs, torch.from_numpy(targets))
        right = (outputs.argmax(1).numpy() == targets).mean()
    assert result.history["train_loss"].iloc[-1] == pytest.approx(float(loss), rel=1e-5)
    assert result.history["train_accuracy"].iloc[-1] == pytest.approx(right)


def test_metrics_and_losses_of_ones_own(small: Problem) -> None:
    def largest(outputs: Tensor, targets: Tensor) -> float:
        assert len(outputs) == len(targets)
        return float(outputs.max())

    result = train(
        small,
        loss=nn.CrossEntropyLoss(label_smoothing=0.1),
        metrics={"largest": largest},
        test=(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])),
    )
    assert {"train_largest", "test_largest", "server_largest_max"} <= set(result.history)
    assert "train_accuracy" not in result.history


def test_labels_that_a_loss_ignores_are_no_mistake(small: Problem) -> None:
    datasets = relabelled(small, 2, -100)
    assert train(small, data=datasets, loss=nn.CrossEntropyLoss()).iterations == 4


def test_a_result_shows_itself_in_a_line(small: Problem) -> None:
    shown = repr(train(small))
    assert re.fullmatch(
        r"Result of sd-feel after 4 iterations and [\d.e-]+ simulated s: train loss [\d.]+, "
        r"train accuracy [\d.]+ \(engine \w+, .* real s\)",
        shown,
    )
    assert len(shown) < 200


def test_ctrl_c_while_an_engine_is_chosen_says_that_nothing_is_lost(
    small: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sdfeel.simulation.simulation.build_engine", interrupted)
    with pytest.raises(KeyboardInterrupt, match="nothing was trained"):
        train(small)


def test_a_device_may_be_one_of_torch(small: Problem) -> None:
    assert train(small, device=torch.device("cpu")).config["device"] == "cpu"


def test_summary(small: Problem) -> None:
    summary = train(small).summary()
    wanted = {"scheme", "iterations", "seconds", "loss", "accuracy", "client_steps_per_second"}
    assert wanted <= set(summary)
    assert summary["scheme"] == "sd-feel"
    assert summary["iterations"] == 4
    assert summary["client_steps_per_second"] > 0


def test_a_result_plots_itself(small: Problem, tmp_path: Path) -> None:
    result = train(small, steps=20, test=small.datasets[0])
    figure = result.plot(tmp_path / "curves.png")
    assert figure.axes
    written = sorted(tmp_path.iterdir())
    assert written
    assert all(path.stat().st_size > 1000 for path in written)
    assert result.plot().axes


# What a user gives.


class Squares(Dataset):
    """A dataset of lists and numpy numbers, read one sample at a time."""

    def __init__(self, problem: Problem, client: int) -> None:
        self.x, self.y = problem.inputs[client], problem.targets[client]
        self.read = 0

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self.x):
            raise IndexError(index)
        self.read += 1
        return self.x[index], int(self.y[index])


DATASETS: dict[str, Callable[[Problem], Any]] = {
    "tensors": lambda p: p.datasets,
    "own": lambda p: [Squares(p, i) for i in range(6)],
    "lists of pairs": lambda p: [
        list(zip(x, y.tolist(), strict=True)) for x, y in zip(p.inputs, p.targets, strict=True)
    ],
    "subsets": lambda p: [Subset(dataset, list(range(len(dataset)))) for dataset in p.datasets],
    "concatenated": lambda p: [ConcatDataset([dataset]) for dataset in p.datasets],
    "client data": lambda p: ClientData.from_datasets(p.datasets),
    "int32 labels": lambda p: [
        TensorDataset(*(dataset.tensors[0], dataset.tensors[1].int())) for dataset in p.datasets
    ],
    "a tuple": lambda p: tuple(p.datasets),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_datasets_of_any_kind(small: Problem, kind: str) -> None:
    expected = train(small)
    result = train(small, data=DATASETS[kind](small))
    np.testing.assert_array_equal(vector(result.model), vector(expected.model))


def test_a_dataset_is_read_once(small: Problem) -> None:
    datasets = [Squares(small, client) for client in range(6)]
    train(small, data=datasets, steps=10)
    again = [dataset.read - size for dataset, size in zip(datasets, small.samples, strict=True)]
    assert min(again) == 1, "the first item twice: does it change by itself?"
    assert sum(again) <= 10, "that, and one for the size of the model"


def test_one_dataset_and_a_partition(small: Problem) -> None:
    whole = ConcatDataset(small.datasets)
    ends = np.cumsum([0, *small.samples])
    parts = [np.arange(ends[i], ends[i + 1]) for i in range(6)]
    by_rows = train(small, data=whole, partition=parts)
    np.testing.assert_array_equal(vector(by_rows.model), vector(train(small).model))
    labels = np.concatenate(small.targets)
    by_name = train(small, data=whole, partition="iid", seed=4)
    own = partition("iid", labels, 6, 4)
    by_own = train(small, data=whole, partition=own, seed=4)
    np.testing.assert_array_equal(vector(by_name.model), vector(by_own.model))


def test_networks_of_any_shape(small: Problem) -> None:
    clusters = [[5, 0], [1], [2, 3, 4]]
    results = [
        train(small, network=Network(clusters, graph))
        for graph in (nx.path_graph(3), [(0, 1), (1, 2)], "path")
    ]
    for result in results[1:]:
        np.testing.assert_array_equal(vector(result.model), vector(results[0].model))


def test_a_profile_by_name_by_path_or_by_itself(small: Problem, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "flops_per_step = 1e6\n[rates]\ncpu = 1e6\nclient_server = 1e9\nserver_server = 1e9\n"
        "server_cloud = 1e9\nclient_cloud = 1e9\n"
    )
    times = [
        train(small, profile=profile).seconds
        for profile in (str(path), path, load_profile(str(path)))
    ]
    assert times[0] == times[1] == times[2] == pytest.approx(4.0, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_profile_with_counted_flops(small: Problem, dtype: torch.dtype) -> None:
    result = train(small, small.model.to(dtype), profile="counted", batch_size=10)
    flops = 2 * 2 * 10 * 4 * 3  # forward and gradient of the weights
    uploads, exchanges = 2 * 15 * 32 / 5e6, 15 * 32 / 50e6
    assert result.seconds == pytest.approx(4 * flops / 10e9 + uploads + exchanges)


def test_negative_mixing_weights_are_told_once(small: Problem) -> None:
    with pytest.warns(NegativeMixingWarning, match="metropolis") as told:
        train(small, averager="paper")
    assert [one.category for one in told].count(NegativeMixingWarning) == 1
    assert told[0].filename == short_runs.__file__, "where sdfeel.train was called"


def test_exact_on_paper_but_not_on_servers_is_told() -> None:
    """Clusters of very different size in a row: exchange by exchange rounding would win."""
    network = Network.build("path", 10)
    samples = [1, 30, 2, 25, 1, 40, 3, 20, 1, 35]
    problem = classification(samples, network.clusters.members, network.graph)
    with pytest.warns(RoundingWarning, match="all-reduce"):
        train(problem, averager="finite-time")


@quiet
def test_equal_clusters_warn_of_nothing() -> None:
    problem = classification([4] * 6, [[0, 1], [2, 3], [4, 5]], "path")
    train(problem, averager="paper")


# What a user gets wrong. Each error names the field, the value and what would be right, and comes
# before any training: arguments, then what the error names, shows and advises.


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.layer(x), x


def relabelled(problem: Problem, client: int, label: int) -> list[TensorDataset]:
    problem.targets[client][1] = label
    return problem.datasets


def mixed_dtypes() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3).double())


BAD: dict[str, tuple[Callable[[Problem], dict[str, Any]], str, str, str]] = {
    "alpha 0": (lambda p: {"schedule": Schedule(1, 1, 0)}, "schedule.alpha", "0", "at least 1"),
    "tau1 0": (lambda p: {"schedule": Schedule(0, 1, 1)}, "schedule.tau1", "0", "at least 1"),
    "tau2 0": (lambda p: {"schedule": Schedule(1, 0, 1)}, "schedule.tau2", "0", "at least 1"),
    "beta 0": (lambda p: {"participation": 0}, "participation", "0", "(0, 1]"),
    "beta above 1": (lambda p: {"participation": 1.5}, "participation", "1.5", "(0, 1]"),
    "lr 0": (lambda p: {"lr": 0}, "lr", "0", "above 0"),
    "lr nan": (lambda p: {"lr": math.nan}, "lr", "nan", "finite"),
    "lr text": (lambda p: {"lr": "0.1"}, "lr", "'0.1'", "number"),
    "steps 0": (lambda p: {"steps": 0}, "steps", "0", "at least 1"),
    "steps 1.5": (lambda p: {"steps": 1.5}, "steps", "1.5", "whole number"),
    "batch 0": (lambda p: {"batch_size": 0}, "batch_size", "0", "at least 1"),
    "seed -1": (lambda p: {"seed": -1}, "seed", "-1", "2**64"),
    "until 0": (lambda p: {"until": 0}, "until", "0", "above 0"),
    "evaluate 0": (lambda p: {"evaluate_every": 0}, "evaluat", "0", "at least 1"),
    "train samples 0": (lambda p: {"train_samples": 0}, "train_samples", "0", "at least 1"),
    "scheme": (lambda p: {"scheme": "sdfeel"}, "scheme", "'sdfeel'", "did you mean 'sd-feel'"),
    "averager": (lambda p: {"averager": "papr"}, "averager", "'papr'", "did you mean 'paper'"),
    "unused averager": (
        lambda p: {"averager": "papr", "scheme": "fedavg"}, "averager", "'papr'", "'paper'",
    ),
    "profile": (lambda p: {"profile": "papr"}, "profile", "'papr'", "did you mean 'paper'"),
    "rate 0": (
        lambda p: {"profile": load_profile("paper").__class__(
            "x", 1.0, 0.0, 1.0, 1.0, 1.0, 1.0
        )}, "cpu", "0.0", "above 0",
    ),
    "network": (lambda p: {"network": [[0, 1], [2]]}, "network", "[0, 1]", "Network.ring"),
    "a class as model": (lambda p: {"model": nn.Linear}, "model", "Linear", "not its class"),
    "loss by name": (lambda p: {"loss": "mse"}, "loss", "'mse'", "a function"),
    "codecs by name": (lambda p: {"codecs": "float16"}, "codecs", "'float16'", "by way"),
    "engine": (lambda p: {"engine": "quick"}, "engine", "'quick'", "known: auto"),
    "device": (lambda p: {"device": "warp9"}, "device", "'warp9'", "known here: cpu"),
    "device of others": (lambda p: {"device": "gpu"}, "device", "'gpu'", 'torch calls it "cuda"'),
    "device not here": (
        lambda p: {"device": "cuda:99"}, "device", "'cuda:99'", "not available here",
    ),
    "regression without a loss": (
        lambda p: {
            "model": nn.Linear(4, 1),
            "data": [TensorDataset(d.tensors[0], torch.rand(len(d), 1)) for d in p.datasets],
        },
        "targets", "float32", "loss=F.mse_loss",
    ),
    "language model": (
        lambda p: {
            "model": nn.Embedding(11, 13),
            "data": [TensorDataset(*torch.randint(0, 11, (2, 5, 8))) for _ in p.datasets],
        },
        "model", "(2, 8, 13)", "transpose(1, 2)",
    ),
    "a client too few": (
        lambda p: {"data": p.datasets[:5]}, "client_datasets", "5", "6 clients",
    ),
    "client data too few": (
        lambda p: {"data": ClientData.from_datasets(p.datasets[:5])},
        "client_datasets", "5", "6 clients",
    ),
    "no list": (
        lambda p: {"data": p.datasets[0]}, "client_datasets", "TensorDataset", "partition=",
    ),
    "no map-style": (
        lambda p: {"data": [iter([])] * 6}, "data of client 0", "list_iterator", "map-style",
    ),
    "empty client": (
        lambda p: {"data": [*p.datasets[:5], TensorDataset(torch.zeros(0, 4), torch.zeros(0))]},
        "data of client 5", "[]", "a sample or more",
    ),
    "parts too few": (
        lambda p: {"data": p.datasets[3], "partition": [[0], [1]]},
        "partition", "2 parts", "6 clients",
    ),
    "empty part": (
        lambda p: {"data": p.datasets[3], "partition": [[0], [1], [], [2], [3], [4]]},
        "samples[2]", "0", "needs data",
    ),
    "rows out of range": (
        lambda p: {"data": p.datasets[3], "partition": [[0], [1], [99], [2], [3], [4]]},
        "indices of client 2", "99", "0..19",
    ),
    "unknown partition": (
        lambda p: {"data": p.datasets[3], "partition": "dirichlett"},
        "partition", "'dirichlett'", "did you mean 'dirichlet'",
    ),
    "label too large": (
        lambda p: {"data": relabelled(p, 2, 3)}, "label of client 2, sample 1", "3", "0..2",
    ),
    "label too large for a loss object": (
        lambda p: {"data": relabelled(p, 2, 3), "loss": nn.CrossEntropyLoss()},
        "label of client 2, sample 1", "3", "0..2",
    ),
    "label negative": (
        lambda p: {"data": relabelled(p, 4, -1)}, "label of client 4, sample 1", "-1", "0..2",
    ),
    "real targets": (
        lambda p: {
            "data": [TensorDataset(d.tensors[0], d.tensors[1].float()) for d in p.datasets]
        },
        "targets", "float32", "loss=",
    ),
    "shapes differ": (
        lambda p: {
            "data": [*p.datasets[:5], TensorDataset(torch.zeros(2, 5), torch.zeros(2).long())]
        },
        "inputs of client 5", "(5,)", "as client 0's",
    ),
    "inputs do not fit": (
        lambda p: {"model": nn.Linear(5, 3)}, "model", "Linear", "inputs of shape (2, 4)",
    ),
    "counted, inputs do not fit": (
        lambda p: {"model": nn.Linear(5, 3), "profile": "counted"},
        "model", "Linear", "shape (2, 4)",
    ),
    "outputs do not fit": (
        lambda p: {"model": nn.Sequential(nn.Linear(4, 3), nn.Flatten(0))},
        "model", "outputs (6,)", "(batch, classes)",
    ),
    "two outputs": (lambda p: {"model": TwoOutputs()}, "model", "tuple", "your own loss="),
    "loss does not fit": (
        lambda p: {"loss": functional.l1_loss, "model": nn.Linear(4, 7)},
        "model", "(2, 7)", "targets of shape (2,)",
    ),
    "loss broadcasts": (
        lambda p: {
            "loss": functional.mse_loss,
            "model": nn.Linear(4, 1),
            "data": [TensorDataset(d.tensors[0], d.tensors[1].float()) for d in p.datasets],
        },
        "model", "(2, 1)", "targets of shape (2,)",
    ),
    "loss per sample": (
        lambda p: {"loss": nn.CrossEntropyLoss(reduction="none")}, "loss", "Tensor", "one number",
    ),
    "nothing to train": (
        lambda p: {"model": nn.Flatten()}, "model", "Flatten", "no parameter to train",
    ),
    "mixed dtypes": (lambda p: {"model": mixed_dtypes()}, "model", "float64", "one real dtype"),
    "batch norm on one sample": (
        lambda p: {"model": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), "batch_size": 1},
        "model", "Sequential", "batch of 1",
    ),
    "empty test": (
        lambda p: {"test": TensorDataset(torch.zeros(0, 4), torch.zeros(0))},
        "test", "[]", "a sample or more",
    ),
    "test shape": (
        lambda p: {"test": (torch.zeros(2, 5), torch.zeros(2).long())}, "test", "(2, 5)", "(4,)",
    ),
    "test lengths": (
        lambda p: {"test": (torch.zeros(2, 4), torch.zeros(3).long())},
        "test", "[3]", "equally many",
    ),
    "test label": (
        lambda p: {"test": (torch.zeros(2, 4), torch.tensor([0, 9]))},
        "test: label", "9", "0..2",
    ),
}  # fmt: skip


@quiet
@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named_before_any_training(small: Problem, what: str, tmp_path: Path) -> None:
    arguments, field, value, remedy = BAD[what]
    started: list[Any] = []
    with pytest.raises(InputError) as error:
        train(
            small,
            **{
                "on_start": lambda *about: started.append(about),
                "on_progress": started.append,
                **arguments(small),
            },
        )
    assert error.value.field.startswith(field)
    assert value in repr(error.value.value)
    assert remedy in error.value.remedy
    assert str(error.value) == f"{error.value.field} = {error.value.value!r}: {error.value.remedy}"
    assert not started


def test_an_input_error_is_a_value_error_and_travels_between_processes() -> None:
    error = InputError("alpha", 0, "at least 1")
    assert isinstance(error, ValueError)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.field, again.value, again.remedy) == ("alpha", 0, "at least 1")


def test_a_long_value_is_shown_in_part() -> None:
    text = str(InputError("clusters", list(range(1000)), "shorter"))
    assert len(text) < 250
    assert "..." in text


def test_metrics_are_functions_by_name() -> None:
    problem = classification([4, 4, 4], [[0], [1], [2]], "path")
    for wrong, field in ((["acc"], "metrics"), ({"acc": "x"}, "metrics['acc']")):
        with pytest.raises(InputError) as error:
            train(problem, metrics=wrong)
        assert error.value.field == field


def test_an_exception_of_the_users_own_comes_through_with_its_place() -> None:
    problem = classification([4, 4, 4], [[0], [1], [2]], "path")
    with pytest.raises(ZeroDivisionError) as error:
        train(problem, metrics={"mine": lambda outputs, targets: 1 / 0})
    assert error.value.__notes__ == ["from the metric 'mine'"]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.requires_grad:  # in training, not where it is tried or evaluated
            raise KeyError("mine")
        return functional.cross_entropy(outputs, targets)

    with pytest.raises(KeyError) as error:
        train(problem, loss=loss, engine="reference", metrics={}, evaluate_servers=False)
    assert "from client" in error.value.__notes__[0]


def test_a_wrong_engine_is_named_before_the_data_is_read() -> None:
    problem = classification([4, 4, 4], [[0], [1], [2]], "path")
    with pytest.raises(InputError, match="did you mean 'fast'"):
        train(problem, data="no data", engine="fsat")
