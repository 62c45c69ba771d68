"""What can be set is declared once: Python, TOML, `--set` and records agree on it."""

from __future__ import annotations

import pytest

import sdfeel
from sdfeel import InputError, Schedule
from sdfeel.algorithm.methods.averaging import Rule
from sdfeel.algorithm.methods.codecs import TopK
from sdfeel.experiments.config import run_config, with_settings
from sdfeel.experiments.run import simulation_of
from sdfeel.simulation.settings import Settings, reference
from sdfeel.simulation.simulation import Simulation


def test_python_and_toml_have_the_same_defaults() -> None:
    assert run_config({}).settings == Settings()
    assert Settings().schedule == Schedule() == Schedule(2, 1, 5)


def test_every_setting_can_be_set_by_its_key_and_is_in_the_record() -> None:
    table = run_config({}).table()
    for row in reference():
        assert row["about"]
        here = table
        for part in row["key"].split("."):
            assert part in here, row["key"]
            here = here[part]


def test_a_record_read_back_is_the_same_run() -> None:
    table = {
        "optimizer": {"name": "momentum", "momentum": 0.5, "memory": "keep"},
        "averaging_rule": {"name": "trimmed", "trim": 0.1},
        "pace": {"name": "deadline", "seconds": 2.0},
        "codecs": {"up": {"name": "top-k", "k": 5}, "down": "int8"},
        "correction": {"name": "servers", "gamma": 0.1},
        "lr": 0.2,
        "rate": {"name": "cosine", "over": 50, "floor": 0.01, "warmup": 5},
        "schedule": {"tau1": 3, "participation": 0.5},
        "evaluation": {"every": 7, "test_samples": 5},
    }
    config = run_config(table)
    settings = config.settings
    assert settings.optimizer == sdfeel.Momentum(0.5, memory="keep")
    assert settings.averaging_rule == Rule("trimmed", trim=0.1)
    assert settings.codecs["up"] == TopK(5)
    assert config.table()["codecs"] == {
        "up": {"name": "top-k", "k": 5}, "down": "int8", "between": "float32",
    }  # fmt: skip
    assert settings.correction == sdfeel.Correction("servers", gamma=0.1)
    assert settings.lr == sdfeel.Cosine(0.2, over=50, floor=0.01, warmup=5)
    assert settings.pace == sdfeel.Deadline(2.0)
    assert settings.schedule == Schedule(3, 1, 5)
    assert (settings.participation, settings.evaluate_every) == (0.5, 7)
    kept = config.table()
    kept.pop("until")  # None stands for no end, which TOML has no word for
    again = run_config(kept)
    assert again.table() == config.table()


@pytest.mark.parametrize(
    ("settings", "field", "remedy"),
    [
        (["optimizer.name=momentun"], "optimizer.name", "did you mean 'momentum'"),
        (["optimizer.name=momentum", "optimizer.momentum=1.5"], "optimizer.momentum", "below 1"),
        (
            ["optimizer.name=momentum", "optimizer.momentum=lots"],
            "optimizer.momentum",
            "from 0 to below 1",
        ),
        (
            ["optimizer.momentum=0.5"],
            "optimizer.momentum",
            "it goes with optimizer.name = 'momentum'",
        ),
        (
            ["pace.size=3"],
            "pace.size",
            "goes with pace.name = 'fedbuff' and scheme = 'fedbuff'",
        ),
        (["momentum=0.9"], "momentum", "'optimizer.momentum', with optimizer.name = 'momentum'?"),
        (
            ["size=3"],
            "size",
            "'pace.size', with pace.name = 'fedbuff' and scheme = 'fedbuff'?",
        ),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay", "not below 0"),
        (["optimizer.name=adam", "optimizer.beta1=1"], "optimizer.beta1", "below 1"),
        (["optimizer.clip=0"], "optimizer.clip", "above 0"),
        (["optimizer.clip=big"], "optimizer.clip", "above 0"),
        (["lr=0"], "lr", "above 0"),
        (["lr=0", "rate.name=inverse", "rate.k0=5"], "lr", "above 0"),
        (["lr=fast", "rate.name=inverse", "rate.k0=5"], "lr", "above 0"),
        (["rate.name=cosin"], "rate.name", "did you mean 'cosine'"),
        (["rate=cosine"], "rate.over", "is needed"),
        (["rate.name=cosine", "rate.over=0"], "rate.over", "at least 1"),
        (["rate.name=cosine", "rate.over=9", "rate.floor=1"], "rate.floor", "from 0 to lr"),
        (["rate.name=step", "rate.every=9", "rate.factor=0"], "rate.factor", "above 0"),
        (["rate.name=constant", "rate.k0=2"], "rate.k0", "goes with rate.name = 'inverse'"),
        (["rate.nam=cosine"], "rate.nam", "did you mean 'name'? known: eta, name, warmup"),
        (["rate.warmup=-1"], "rate.warmup", "at least 0"),
        (
            ["optimizer.memory=forget", "optimizer.name=momentum"],
            "optimizer.memory",
            "known: keep, reset",
        ),
        (["codecs.up=float17"], "codecs.up", "did you mean 'float16'"),
        (["codecs.sideways=float16"], "codecs", "known: between, down, up"),
        (["codecs.up.name=top-k", "codecs.up.k=0"], "codecs.k", "at least 1"),
        (["codecs.up.name=top-k", "codecs.up.share=0.1"], "codecs.up.share", "known: k, name"),
        (["correction.name=two-leve"], "correction.name", "did you mean 'two-level'"),
        (["correction.gamma=-1"], "correction.gamma", "above 0"),
        (["correction.guard=5"], "correction.guard", "true or false"),
        (["pace.name=deadlin"], "pace.name", "did you mean 'deadline'"),
        (["pace.name=deadline"], "pace.seconds", "is needed"),
        (["pace.name=deadline", "pace.seconds=0"], "pace.seconds", "above 0"),
        (["averaging_rule.name=medain"], "averaging_rule.name", "did you mean 'median'"),
        (["evaluation.evry=3"], "evaluation.evry", "unknown key"),
        (["clock.profil=paper"], "clock.profil", "did you mean 'profile'"),
        (["evaluation.every=0"], "evaluation.every", "at least 1"),
        (["steps=1.5"], "steps", "whole number"),
        (["seed=-1"], "seed", "2**64"),
        (
            ["schedule.tau=3"],
            "schedule.tau",
            "known: alpha, participation, tau1, tau2",
        ),
        (["server_optimizer.eta=3"], "server_optimizer.eta", "name one of fedadagrad"),
        (["data=own:load"], "data", "is a table: did you mean data.name? known: arguments"),
        (["model=own:Model"], "model", "is a table: did you mean model.name?"),
        (["clock=paper"], "clock", "is a table: did you mean clock.profile?"),
        (["network=ring"], "network", "is a table: did you mean network.graph?"),
        (["data.nam=x"], "data.nam", "did you mean 'name'"),
    ],
)
def test_a_mistake_is_named_by_its_key(settings: list[str], field: str, remedy: str) -> None:
    with pytest.raises(InputError) as error:
        run_config(with_settings({}, settings), "my.toml")
    assert error.value.field == f"my.toml: {field}"
    assert remedy in error.value.remedy


def test_until_alone_in_a_file_is_as_many_iterations_as_fit_into_it() -> None:
    def simulated(*settings: str) -> Simulation:
        few = ["model.name=logistic", "clock.profile=paper", *settings]
        return simulation_of(run_config(with_settings({}, few)))

    timed = simulated("until=3.0")
    events = timed.algorithm.events()
    assert timed.settings.steps == next(event.k for event in events if event.ends >= 3.0)
    assert simulated("until=3.0", "steps=9").settings.steps == 9
    assert simulated().settings.steps == 1000


def test_an_unknown_argument_is_named(small) -> None:
    with pytest.raises(InputError, match="did you mean 'batch_size'"):
        sdfeel.train(small.model, small.datasets, network=small.network, steps=1, batchsize=3)
    with pytest.raises(InputError, match="steps"):
        sdfeel.train(small.model, small.datasets, network=small.network)
