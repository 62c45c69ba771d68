"""Others' experiments: their files are whole, their verdicts follow from numbers, one runs."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from sdfeel.cli import app
from sdfeel.data import load
from sdfeel.experiments.reproduce import judge, reproduction_of
from sdfeel.experiments.reproduce.document import command, verdict_rows
from sdfeel.experiments.reproduce.pieces import (
    DumbbellNet,
    Redrawing,
    few_images,
    logit,
    users_of_two_digits,
)
from sdfeel.experiments.reproduce.spec import PUBLISHED, Claim, read_target

ITERATIONS = np.arange(0, 101, 10.0)


def line(value: float) -> pd.DataFrame:
    """A loss that falls by 0.01 in ten iterations, and ends at `value`."""
    loss = value + 0.001 * (100 - ITERATIONS)
    return pd.DataFrame({"iteration": ITERATIONS, "seconds": ITERATIONS, "train_loss": loss})


def value_claim(**more) -> Claim:
    given = {"name": "c", "says": "s", "kind": "value", "curves": ["a"], "published": 0.5}
    return Claim(**given | {"tolerance": 0.01} | more)


@pytest.mark.parametrize(
    ("ends", "where", "expected"),
    [
        ((0.509,), 100, "confirmed"),
        ((0.511,), 100, "not confirmed"),
        ((0.489,), 100, "not confirmed"),
        ((0.455,), 55, "confirmed"),  # between two evaluations, 0.045 above the end
        ((0.5,), 101, "open"),  # the run was shorter
        ((0.501, 0.499, 0.5), 100, "confirmed"),
        ((0.53, 0.531, 0.529), 100, "not confirmed"),
    ],
)
def test_a_published_value_is_met_within_its_tolerance(ends, where, expected) -> None:
    runs = {"a": [line(end) for end in ends]}
    assert judge("x", value_claim(where=where), runs).verdict == expected


def test_without_a_place_it_is_the_mean_of_the_last_fifth() -> None:
    verdict = judge("x", value_claim(published=0.51, tolerance=0.001), {"a": [line(0.5)]})
    assert verdict.verdict == "confirmed"
    assert verdict.value == pytest.approx(0.51)


def test_a_run_must_last_less_than_its_bound() -> None:
    claim = Claim(name="c", says="s", kind="lasts", curves=["a"], threshold=10.0)
    runs = {"a": [line(1.0)] * 2}
    assert judge("x", claim, runs, {"a": [1.0, 2.0]}).verdict == "confirmed"
    assert judge("x", claim, runs, {"a": [11.0, 12.0]}).verdict == "not confirmed"
    assert judge("x", claim, runs, {"a": [1.0, math.nan]}).verdict == "open"


@pytest.mark.parametrize(
    "wrong",
    [
        {"published": None},
        {"tolerance": None},
        {"tolerance": 0.0},
        {"underlay": "gaia"},
        {"underlay": "gaia", "overlay": "ring"},
        {"curves": []},
        {"kind": "cycle"},
    ],
)
def test_claims_that_cannot_be_judged_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"published|tolerance|cycle|curves"):
        value_claim(**wrong)


def test_cycle_times_are_as_published() -> None:
    """Every number of the source's table for three networks and three overlays."""
    target = read_target("cycle-times", PUBLISHED)
    verdicts = [judge(target.name, claim, {}) for claim in target.claim]
    assert [verdict.verdict for verdict in verdicts] == ["confirmed"] * 9
    assert {row["asked for"] for row in verdict_rows(verdicts)} >= {"0.390854 ± 1e-05"}


def test_every_experiment_plans_and_says_whose_it_is() -> None:
    plan = reproduction_of(PUBLISHED.targets, profile="quick", dataset="mnist",
                           collection=PUBLISHED)  # fmt: skip
    assert command(plan) == "sdfeel verify all --quick"
    assert all(target.source for target in plan.targets)
    lengths = {job.name.split(",")[0]: job.config.settings.steps for job in plan.jobs}
    assert lengths["dumbbell: alike"] == 120
    assert lengths["flute: logistic regression"] == 600
    every = {job.config.settings.evaluate_every for job in plan.jobs if "(32" in job.name}
    assert every == {640}


def test_a_redrawing_client_makes_the_steps_of_logistic_regression() -> None:
    """Its steps are those of autograd on the batches that it draws; two calls draw anew."""
    train, targets = (each[:600] for each in _binary_rows())
    model = logit((784,), None)
    client = Redrawing(3, train, targets, model)
    start = np.zeros(785, dtype=np.float32)
    trained = client.train(start, first=1, steps=2)
    assert not np.array_equal(trained, client.train(start, first=3, steps=2))
    np.testing.assert_array_equal(trained, client.train(start, first=1, steps=2))
    inputs, labels = _binary_rows()
    rng = np.random.default_rng((3, 1))
    rows = rng.choice(len(labels), 600, replace=False)
    order = rng.permutation(600)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    for batch in (order[:300], order[300:]):
        optimizer.zero_grad()
        logits = model(inputs[rows[batch]])
        torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[rows[batch]]).backward()
        optimizer.step()
    by_autograd = torch.cat([model.weight.detach().flatten(), model.bias.detach()])
    np.testing.assert_allclose(trained, by_autograd.numpy(), atol=1e-6)


@pytest.fixture(autouse=True)
def _small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 images in place of all: no test fetches anything."""
    from sdfeel.experiments.reproduce import pieces

    monkeypatch.setattr(pieces, "load", lambda _: load("mnist-5k"))
    pieces._binary.cache_clear()
    yield
    pieces._binary.cache_clear()


def _binary_rows():
    from sdfeel.experiments.reproduce.pieces import binary_mnist

    return binary_mnist()[0]


def test_dumbbell_halves_hold_five_digits_each() -> None:
    pairs, test = few_images(2, seed=1, by_digit=True)
    assert [set(labels.tolist()) for _, labels in pairs] == [{0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}]
    assert [len(labels) for _, labels in pairs] == [960, 960]
    assert len(test[0]) == len(test[1])
    model = DumbbellNet((1, 28, 28), 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_199_882
    assert model(pairs[0][0][:2]).shape == (2, 10)


def test_users_have_two_digits_and_unequal_sizes() -> None:
    pairs, _ = users_of_two_digits(100, seed=0)
    sizes = [len(labels) for _, labels in pairs]
    assert min(sizes) >= 10
    assert max(sizes) > 10 * np.median(sizes)
    assert all(len(set(labels.tolist())) <= 2 for _, labels in pairs)
    again, _ = users_of_two_digits(100, seed=0)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(pairs, again, strict=True))


def test_the_command_prints_what_scripts_read(tmp_path) -> None:
    runner = CliRunner()
    listed = json.loads(runner.invoke(app, ["verify", "--list", "--json"]).stdout)
    assert [row["name"] for row in listed] == list(PUBLISHED.targets)
    ran = runner.invoke(app, ["verify", "cycle-times", "--json", "--out", str(tmp_path)])
    claims = json.loads(ran.stdout)["claims"]
    assert {claim["verdict"] for claim in claims} == {"confirmed"}
    assert set(claims[0]) >= {"name", "published", "ours", "tolerance", "verdict"}
    assert "GEANT" in (tmp_path / "index.html").read_text("utf-8")
    wrong = runner.invoke(app, ["verify", "mll-sdg"])
    assert "mll-sgd" in str(wrong.exception) + wrong.output
