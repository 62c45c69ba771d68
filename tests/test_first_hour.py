"""What newcomers stumbled over on the command line and in figures."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import TensorDataset
from worlds import Problem

import sdfeel
from sdfeel import InputError, Network, Schedule
from sdfeel.experiments.config import merge, read_table, run_config, with_settings
from sdfeel.experiments.run import simulation_of
from sdfeel.simulation.settings import Settings
from sdfeel.simulation.words import WORDS, ours


@pytest.mark.parametrize(
    ("setting", "right"),
    [
        ("tau1=3", "schedule.tau1"),
        ("partition='iid'", "data.partition"),
        ("profile='paper'", "clock.profile"),
    ],
)
def test_a_key_without_its_table_is_named_with_it(setting: str, right: str) -> None:
    with pytest.raises(InputError) as error:
        run_config(with_settings(read_table("mnist-5k"), [setting]))
    assert f"did you mean {right!r}" in error.value.remedy


@pytest.mark.parametrize("servers", [-3, 0, 1.5, True])
def test_a_wrong_number_of_servers_is_blamed_itself(servers: int) -> None:
    with pytest.raises(InputError) as error:
        Network.build("ring", servers, 1)
    assert error.value.field == "servers"


def test_comparing_names_every_mistake_before_anything_is_trained(tmp_path: Path) -> None:
    """A profile's file is opened only where a run is put together; the first variant is right."""
    config = tmp_path / "two.toml"
    config.write_text(
        'steps = 2\n[[variant]]\nlabel = "right"\n[[variant]]\nlabel = "wrong"\n'
        'set = { "clock.profile" = "nowhere.toml" }\n'
    )
    command = [sys.executable, "-m", "sdfeel", "compare", str(config), "--out", str(tmp_path / "r")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere.toml" in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_model_function_may_take_nothing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare_model.py").write_text(
        "from torch import nn\ndef build():\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))\n"
        "def wants(a):\n    return None\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    config = run_config({"model": {"name": "bare_model:build"}})
    assert simulation_of(config).problem.layout.parameters == 7850
    with pytest.raises(InputError, match=r"or as function\(\)"):
        simulation_of(run_config({"model": {"name": "bare_model:wants"}}))


def test_a_figure_has_own_metrics_goes_to_pdf_and_shows_itself(
    small: Problem, tmp_path: Path
) -> None:
    result = sdfeel.train(
        small.model,
        small.datasets,
        network=small.network,
        schedule=Schedule(2, 1, 1),
        steps=4,
        engine="reference",
        averager="metropolis",
        metrics={"largest": lambda outputs, targets: float(outputs.max())},
    )
    figure = result.plot(tmp_path / "c.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["c.pdf"]
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    assert "train largest" in [axes.get_ylabel() for axes in figure.axes]
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("word", "here"),
    [
        ("learning_rate", "lr"),
        ("leraning_rate", "lr"),
        ("optim", "optimizer"),
        ("tau1", "schedule"),
        ("epochs", "steps"),
    ],
)
def test_words_of_others_lead_to_ours(word: str, here: str) -> None:
    """Of what is near in letters none is right: learning_rate is no averaging_rule."""
    network = sdfeel.Network([[0]], [])
    with pytest.raises(InputError, match=rf"{word} = 1: .*{here}"):
        sdfeel.train(nn.Linear(2, 2), [([[1.0, 2.0]], [0])], network=network, steps=1, **{word: 1})


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [(torch.optim.Adam, r"sdfeel\.Adam\(...\), not"), (torch.optim.RMSprop, "subclass of sdfeel")],
)
@pytest.mark.parametrize("is_class", [True, False])
def test_optimizers_of_torch_lead_to_ours(kind: Any, remedy: str, is_class: bool) -> None:
    given = kind if is_class else kind(nn.Linear(2, 2).parameters())
    with pytest.raises(InputError, match=rf"optimizer = .*{remedy}"):
        Settings.of({"optimizer": given})


def test_an_unknown_argument_is_held_against_all_arguments() -> None:
    """Also against those that are no settings, such as `test` and `metrics`."""
    network = sdfeel.Network([[0]], [])
    arguments: Any = {"metric": {}}
    with pytest.raises(InputError, match=r"metric = \{\}: .*did you mean 'metrics'"):
        sdfeel.train(nn.Linear(2, 2), [([[1.0, 2.0]], [0])], network=network, steps=1, **arguments)


def test_participation_is_no_part_of_a_schedule() -> None:
    """It is in a file, so that one looks for it there."""
    arguments: Any = {"participation": 0.5}
    with pytest.raises(InputError, match=r"schedule\.participation = 0\.5: unknown key"):
        Schedule(2, 1, 5, **arguments)
    with pytest.raises(InputError, match=r"schedule\.participation = 0\.5: is an argument"):
        Settings.of({"schedule": arguments})


@pytest.mark.parametrize("word", [*WORDS, "lernrate", "learningrate"])
def test_words_of_others_lead_to_keys_of_files(word: str) -> None:
    """Right or misspelt; and the key that is named is one that a file may have."""
    key = ours(word, Settings.model_fields)
    assert key is not None
    with pytest.raises(InputError, match=rf"{word} = 1: unknown key; did you mean '{key}'") as told:
        run_config({word: 1})
    assert len(str(told.value)) < 120, "the list of all keys would hide it"
    nonsense: Any = ["no", "value"]
    with pytest.raises(InputError) as told:
        run_config(merge({"optimizer": {"name": "momentum"}}, {key: nonsense}))
    assert "unknown key" not in str(told.value)


@pytest.mark.parametrize("key", [key for key in run_config({}).table() if len(key) > 4])
def test_our_own_keys_misspelt_lead_to_themselves(key: str) -> None:
    """`shedule` is near `scheduler`, a word of others, and nearer to ours."""
    for place in range(1, len(key)):
        word = key[:place] + key[place + 1 :]
        if word == "trainer":  # a key too: one trainer for all clients
            continue
        with pytest.raises(InputError, match=rf"{word} = 1: unknown key; did you mean '{key}'"):
            run_config({word: 1})


@pytest.mark.parametrize(
    ("text", "value"), [(".1", 0.1), ("1.", 1.0), ("0.1", 0.1), ("iid", "iid"), ("1.2.3", "1.2.3")]
)
def test_a_number_may_be_written_as_people_do(text: str, value: float | str) -> None:
    """`--set lr=.1` is no TOML."""
    assert with_settings({}, [f"lr={text}"]) == {"lr": value}


@pytest.mark.parametrize(("key", "wrong"), [("tau1", 0), ("alpha", 1.5), ("tau3", 1)])
def test_mistakes_of_a_schedule_are_named_with_their_table(key: str, wrong: float) -> None:
    with pytest.raises(InputError, match=rf"schedule.{key} = {wrong}: "):
        run_config({"schedule": {key: wrong}})


def test_no_word_of_others_is_a_setting_of_ours() -> None:
    known = set(Settings.model_fields) | set(inspect.signature(sdfeel.train).parameters)
    assert not set(WORDS) & known


X = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(dim=1) > 0).long()
NETWORK = sdfeel.Network([[0, 1], [2, 3]], [(0, 1)])
PARTS = [(X[i::4], Y[i::4]) for i in range(4)]
REAL = [(x, x.sum(dim=1)) for x, _ in PARTS]


@pytest.mark.parametrize(
    ("model", "data", "settings", "words"),
    [
        (nn.Linear(4, 2), PARTS, {"metrics": {"loss": lambda o, _: o.sum()}}, "name of the loss"),
        (nn.Linear(4, 2), PARTS, {"loss": lambda o, y: F.cross_entropy(o, y).detach()}, "detach"),
        (nn.Linear(4, 2), PARTS, {"loss": lambda *_: torch.tensor(1.0)}, "has no gradient"),
        (nn.Linear(4, 1), REAL, {"loss": lambda o, y: ((o - y) ** 2).mean()}, "broadcast"),
        (nn.Flatten(), PARTS, {}, "no parameter to train"),
        (nn.Linear(4, 2), PARTS, {"config": 3}, "config = 3: a dict"),
        (
            nn.Linear(4, 2),
            PARTS,
            {"lr": lambda _a, _b: 0.1},
            "lr = .*a function of the iteration k",
        ),
        (nn.Linear(4, 1), (X, X.sum(dim=1)), {"partition": "dirichlet"}, "goes by class numbers"),
    ],
)
def test_what_would_train_nothing_or_end_in_a_traceback_is_said_before(
    model: nn.Module, data: object, settings: dict, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        sdfeel.train(model, data, network=NETWORK, steps=4, **settings)


class Mistaken(nn.Linear):
    """A network of a user's with a mistake in it."""

    def __init__(self, kind: str) -> None:
        super().__init__(4, 2)
        self.kind = kind

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.kind == "name":
            return no_such_name  # type: ignore[name-defined]  # noqa: F821
        if self.kind == "training" and self.training and len(inputs) == 3:
            raise ZeroDivisionError
        return super().forward(inputs[:, :3] if self.kind == "shape" else inputs)


@pytest.mark.parametrize("profile", ["counted", "paper"])
@pytest.mark.parametrize(
    ("kind", "words", "line"),
    [
        (
            "name",
            r"fails on inputs of shape \(2, 4\): ",
            "NameError: name 'no_such_name' is not def",
        ),
        (
            "shape",
            r"does not take inputs of shape \(2, 4\): ",
            "RuntimeError: mat1 and mat2 shapes",
        ),
        ("training", "cannot train on a batch of 3, as client 0 has it: ", "ZeroDivisionError$"),
    ],
)
def test_a_mistake_in_a_model_is_named_by_the_users_line(
    kind: str, words: str, line: str, profile: str
) -> None:
    file = r"\S*test_first_hour\.py, line \d+, in forward: "
    with pytest.raises(InputError, match=f"model = 'Mistaken': {words}{file}{line}"):
        sdfeel.train(Mistaken(kind), PARTS, network=NETWORK, steps=4, profile=profile)


@pytest.mark.parametrize("options", [{}, {"partition": "iid"}])
def test_a_data_frame_leads_to_from_pandas(options: dict[str, str]) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [0, 1]})
    with pytest.raises(InputError, match=r"^client_datasets = \['a', 'b'\]: .*from_pandas"):
        sdfeel.train(nn.Linear(1, 2), frame, network=NETWORK, steps=4, **options)


@pytest.mark.parametrize("test", [[], (X[:0], Y[:0]), TensorDataset(X[:0], Y[:0])])
def test_empty_data_to_test_on_is_refused(test: Any) -> None:
    with pytest.raises(InputError, match=r"^test = \[\]: a sample or more is needed$"):
        sdfeel.train(nn.Linear(4, 2), PARTS, network=NETWORK, steps=4, test=test)


def test_a_loss_of_ones_own_that_pairs_outputs_and_targets_is_taken() -> None:
    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs[:, 0] - targets) ** 2).mean()

    result = sdfeel.train(nn.Linear(4, 1), REAL, network=NETWORK, steps=4, loss=loss)
    assert result.iterations == 4


def test_iid_needs_no_labels_and_gives_the_parts_of_before() -> None:
    options = {"network": NETWORK, "steps": 4, "partition": "iid", "loss": nn.MSELoss()}
    targets = X.sum(dim=1, keepdim=True)
    result = sdfeel.train(nn.Linear(4, 1), (X, targets), **options)
    assert result.iterations == 4


def test_whole_numbers_as_targets_of_a_regression_are_trained_by_auto() -> None:
    torch.manual_seed(0)
    model, data = nn.Linear(4, 1), [(x, y[:, None]) for x, y in PARTS]
    options = {"network": NETWORK, "steps": 4, "loss": nn.MSELoss()}
    auto, reference = (
        sdfeel.train(model, data, engine=engine, **options) for engine in ("auto", "reference")
    )
    torch.testing.assert_close(auto.model.weight, reference.model.weight)


@pytest.mark.parametrize("sizes", [2.0, None, "2", [2, 2.5], 0])
def test_clients_per_server_are_whole_numbers(sizes: object) -> None:
    with pytest.raises(InputError, match="clients_per_server"):
        sdfeel.Network.ring(2, sizes)


def test_none_means_that_the_length_was_not_given() -> None:
    options = {"network": NETWORK}
    assert sdfeel.train(nn.Linear(4, 2), PARTS, steps=4, until=None, **options).iterations == 4
    with pytest.raises(InputError, match="steps = None: is needed"):
        sdfeel.train(nn.Linear(4, 2), PARTS, steps=None, **options)


def test_compare_goes_on_without_resume() -> None:
    with pytest.raises(InputError, match="the same call goes on"):
        sdfeel.compare(nn.Linear(4, 2), PARTS, network=NETWORK, steps=4, resume=True)
