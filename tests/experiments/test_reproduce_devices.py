"""Unequal devices in the reproduction: whom final models serve, what a run by turns costs."""

import numpy as np
import pandas as pd
import pytest

from sdfeel.errors import InputError
from sdfeel.experiments.config import run_config
from sdfeel.experiments.reproduce.clusters import bias_rows, cluster_losses
from sdfeel.experiments.reproduce.plan import reproduction_of
from sdfeel.experiments.reproduce.spec import Bias
from sdfeel.experiments.run import run

SMALL = {
    "model": {"name": "logistic"},
    "engine": "vectorised",
    "network": {"servers": 3, "clients_per_server": 2},
    "schedule": {"tau1": 3, "tau2": 1, "alpha": 1},
    "clock": {"profile": "paper-h10"},
    "steps": 12,
    "evaluation": {"every": 12, "train_samples": 5000, "servers": False},
}


@pytest.mark.parametrize("more", [{"pace": {"name": "asynchronous"}}, {"scheme": "fedbuff"}])
def test_losses_by_cluster_add_up_to_the_training_loss(more, tmp_path):
    """All samples of all clusters are all samples: the loss of a run that is evaluated on them."""
    config = run_config({**SMALL, **more})
    folder = tmp_path / "run"
    run(config, out=folder)
    table_of = cluster_losses(config, folder)
    assert table_of["samples"].sum() == 4000
    whole = (table_of["samples"] * table_of["loss"]).sum() / 4000
    metrics = pd.read_csv(folder / "metrics.csv")
    assert whole == pytest.approx(metrics["train_loss"].iloc[-1], rel=1e-5)
    assert (table_of["rate"] > 0).all()
    assert table_of["rate"].nunique() == 3
    (folder / "model.safetensors").unlink()  # it is kept, and not computed again
    pd.testing.assert_frame_equal(cluster_losses(config, folder), table_of)


def table(rate, loss):
    columns = {"server": range(len(rate)), "samples": 1, "rate": rate, "loss": loss}
    return pd.DataFrame(columns)


def test_a_model_pulled_to_fast_clusters_has_a_slope_below_0_and_a_better_one_has_none():
    rates = [np.array([1.0, 2.0, 4.0, 8.0]), np.array([3.0, 1.0, 2.0, 1.0])]
    rounds = [table(rate, np.array([1.0, 0.7, 0.9, 1.1])) for rate in rates]
    better = [table(of["rate"], 0.5 * of["loss"]) for of in rounds]
    pulled = [table(of["rate"], of["loss"] * of["rate"] ** -0.1) for of in rounds]
    losses = {"rounds": rounds, "better": better, "pulled": pulled}
    rows = bias_rows(Bias(against="rounds", curves=["better", "pulled"]), losses)
    slopes = [row["relative change for twice the rate"] for row in rows]
    assert slopes == pytest.approx([0.0, 0.0, -0.1 * np.log(2)], abs=1e-12)
    assert [row["its standard error"] for row in rows] == pytest.approx([0, 0, 0], abs=1e-12)
    assert rows[1]["loss, 3 slowest clusters"] == pytest.approx(
        0.5 * rows[0]["loss, 3 slowest clusters"]
    )


def test_equal_devices_have_no_slope_and_other_devices_no_comparison():
    equal = {"a": [table(np.ones(5), np.arange(1.0, 6.0))]}
    (row,) = bias_rows(Bias(against="a", curves=[]), equal)
    assert row["relative change for twice the rate"] is None
    other = {**equal, "b": [table(np.full(5, 2.0), np.ones(5))]}
    with pytest.raises(InputError):
        bias_rows(Bias(against="a", curves=["b"]), other)


def test_the_work_of_a_run_by_turns_counts_all_clients_steps():
    """The slowest group's iterations are fewer than those of the others."""
    plan = reproduction_of(["devices"], profile="quick", dataset="mnist-5k", seeds=1)
    work = {job.name.partition(": ")[2]: job.work / job.config.settings.steps for job in plan.jobs}
    assert work["H = 10: synchronous, seed 0"] == 50
    assert work["H = 1: asynchronous, a = 1, seed 0"] == pytest.approx(50)
    assert 55 < work["H = 10: asynchronous, a = 1, seed 0"] < 100
    assert 55 < work["H = 10: fedbuff, seed 0"] < 200
