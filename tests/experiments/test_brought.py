"""Data, a model and a loss that a TOML file names by import path, with their arguments."""

import sys
import textwrap

import numpy as np
import pytest
import torch

import sdfeel
from sdfeel.errors import InputError
from sdfeel.experiments.config import run_config
from sdfeel.experiments.run import run, simulation_of

MINE = """
    import numpy as np
    from torch import nn

    import sdfeel

    def load(count=40, kind="pair", clients=None, seed=0):
        rng = np.random.default_rng(7)
        def pair(n):
            x = rng.normal(size=(n, 5)).astype(np.float32)
            return x, (x.sum(axis=1) > 0).astype(np.int64)
        if kind == "clients":
            return [pair(count) for _ in range(clients)], None
        if kind == "real":
            x, y = pair(count)
            return (x, y.astype(np.float32)[:, None]), pair(4)[:1] + (np.zeros((4, 1), "f4"),)
        if kind == "two":
            x, y = pair(count)
            return ({"a": x, "b": x}, y), None
        if kind == "nothing":
            return None
        if kind == "broken":
            raise ZeroDivisionError
        if kind == "uneven":
            return (pair(3)[0], pair(4)[1]), None
        return pair(count), pair(10)

    def plain():
        return load()

    def build(shape, classes, width=3):
        return nn.Sequential(nn.Linear(*shape, width), nn.ReLU(), nn.Linear(width, classes or 1))

    def bare(width=2):
        return nn.Linear(5, width)

    class Both(nn.Module):
        def __init__(self, shape, classes):
            super().__init__()
            self.one = nn.Linear(*shape["a"], classes)

        def forward(self, a, b):
            return self.one(a) + self.one(b)

    def number(shape, classes):
        return 3

    loss = nn.functional.mse_loss
    NOTHING = 3

    class Halving(sdfeel.Method):
        def after(self, model, begin, rate):
            return model

    class Shrinking:
        # A client whose training halves its model.
        def __init__(self, client, inputs, targets, model):
            self.samples = len(targets)
            self.size = sum(p.numel() for p in model.parameters())

        def train(self, model, first, steps):
            return model / 2

    def halfway(graph, shares, alpha):
        return np.full((len(shares), len(shares)), 1 / len(shares))
"""
BASE = {
    "network": {"servers": 2, "clients_per_server": 2, "graph": "path"},
    "steps": 2, "schedule": {"tau1": 1, "tau2": 1, "alpha": 1}, "engine": "reference",
    "averager": "metropolis",
}  # fmt: skip


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A file beside the user, who stands in its folder; each test has its own name for it."""
    name = f"mine_{abs(hash(tmp_path)) % 10**9}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(MINE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return name


def config(mine, data=None, model=None, **change):
    table = {**BASE, **change, "data": {"name": f"{mine}:load", "partition": "iid", **(data or {})}}
    table["model"] = {"name": f"{mine}:build", **(model or {})}
    return run_config(table)


def test_a_file_runs_what_python_would(mine):
    """The same data, partition, start and seed through `sdfeel.train`."""
    import importlib

    result = run(config(mine, {"arguments": {"count": 30}}, {"arguments": {"width": 4}}))
    module = importlib.import_module(mine)
    train, test = module.load(30)
    torch.manual_seed(0)
    model = module.build((5,), 2, width=4)
    alone = sdfeel.train(
        model, train, partition="iid", test=test, network=sdfeel.Network.build("path", 2, 2),
        **{key: value for key, value in BASE.items() if key != "network"},
    )  # fmt: skip
    np.testing.assert_array_equal(result.history["test_loss"], alone.history["test_loss"])
    assert result.history["test_accuracy"].iloc[-1] == alone.history["test_accuracy"].iloc[-1]


@pytest.mark.parametrize(
    ("data", "model"),
    [
        ({"arguments": {"kind": "clients"}, "partition": "dirichlet-fedma"}, {}),
        ({"arguments": {"kind": "real"}}, {"loss": "MINE:loss"}),
        ({"arguments": {"kind": "two"}}, {"name": "MINE:Both"}),
        ({"name": "MINE:plain"}, {"name": "MINE:bare", "arguments": {"width": 6}}),
        ({"partition": "dirichlet", "concentration": 5.0}, {"name": "mlp"}),
    ],
)
def test_what_may_be_brought(mine, data, model):
    data, model = ({k: _named(v, mine) for k, v in table.items()} for table in (data, model))
    assert np.isfinite(run(config(mine, data, model)).history["train_loss"]).all()


@pytest.mark.parametrize(
    ("data", "model", "match"),
    [
        ({"arguments": {"colour": 3}}, {}, r"data.name = .*function\(.*colour"),
        ({"arguments": {"kind": "nothing"}}, {}, r"must return \(train, test\), not NoneType"),
        ({"arguments": {"kind": "uneven"}}, {}, r"data.name .*: train: .*equally many"),
        ({"name": "MINE:NOTHING"}, {}, "must be a function"),
        ({"name": "no_such_file:load"}, {}, "cannot be imported"),
        ({"name": "mnist-5k", "arguments": {"a": 1}}, {"name": "mlp"}, "go with a function"),
        ({}, {"arguments": {"colour": 3}}, r"function\(shape, classes, colour=...\)"),
        ({}, {"name": "MINE:number"}, "must return a torch.nn.Module"),
        ({}, {"name": "mlp", "arguments": {"width": 3}}, "go with a function"),
        ({}, {"loss": "MINE:nothing"}, "model.loss"),
        ({"arguments": {"kind": "real"}, "partition": "shards"}, {}, "goes by labels"),
        ({"arguments": {"kind": "real"}}, {"name": "mlp"}, "our models take"),
        ({"arguments": {"kind": "clients"}, "partition": "shards"}, {}, "has shared out the data"),
    ],
)
def test_what_does_not_fit_is_named(mine, data, model, match):
    data, model = ({k: _named(v, mine) for k, v in table.items()} for table in (data, model))
    with pytest.raises(InputError, match=match):
        simulation_of(config(mine, data, model))


def test_what_a_function_raises_says_whose_it_is(mine):
    with pytest.raises(ZeroDivisionError) as error:
        simulation_of(config(mine, {"arguments": {"kind": "broken"}}))
    assert error.value.__notes__ == [f"from data.name = '{mine}:load'"]


def _named(value, mine):
    if isinstance(value, list):
        return [_named(each, mine) for each in value]
    return value.replace("MINE", mine) if isinstance(value, str) else value


def test_trainers_of_a_file_train(mine):
    """Every period of two halves the model: the file's class trains, and nothing else does."""
    result = run(config(mine, trainers=f"{mine}:Shrinking", steps=4, engine="auto"))
    start = simulation_of(config(mine)).start
    trained = torch.cat([p.detach().flatten() for p in result.model.parameters()])
    torch.testing.assert_close(trained, start / 16)


def test_averager_and_methods_by_import_path(mine):
    """Names in a file are the objects that Python gives: the same numbers."""
    import importlib

    named = config(mine, averager=f"{mine}:halfway", methods=[f"{mine}:Halving"])
    settings = named.settings
    module = importlib.import_module(mine)
    assert settings.averager is module.halfway
    assert [type(method) for method in settings.methods] == [module.Halving]
    exact = run(config(mine, averager="exact"))
    ours = run(named)
    np.testing.assert_allclose(ours.history["train_loss"], exact.history["train_loss"], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"averager": "MINE:nothing"}, "averager.*cannot be imported"),
        ({"methods": ["MINE:loss"]}, "methods"),
        ({"trainers": "MINE:nothing"}, "trainers.*cannot be imported"),
        ({"trainers": "MINE:number"}, "trainers"),
    ],
)
def test_mistakes_in_import_paths_name_their_key(mine, change, match):
    with pytest.raises(InputError, match=match):
        run(config(mine, **{key: _named(value, mine) for key, value in change.items()}))
