"""The commands as a user or a script calls them: what they print, and how they end."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
from rich.console import Console

from sdfeel.cli import app, main, output
from sdfeel.simulation.listening import Progress

TINY = ["--set", "model.name=logistic", "--set", "network.servers=3"]
TINY += ["--set", "network.clients_per_server=2", "--set", "data.partition=iid"]
TINY += ["--set", "engine=vectorised"]  # auto may pick another one the second time
TINY += ["--set", "evaluation.train_samples=100", "--set", "evaluation.servers=false"]


@pytest.fixture
def sdfeel(monkeypatch, capsys):
    """Call the command line in this process: (status, standard output, standard error)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sdfeel", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return call


def test_topology_prints_the_names_that_scripts_rely_on(sdfeel):
    status, out, _ = sdfeel("topology", "ring", "--servers", "10", "--alpha", "5", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["zeta"] == pytest.approx(0.8257, abs=1e-4)
    assert found["contraction"] == pytest.approx(0.3837, abs=1e-4)
    assert found["exchanges"] == 5
    assert len(found["mixing"]) == 10


@pytest.mark.parametrize("averager", ["paper", "chebyshev", "finite-time", "all-reduce", "exact"])
def test_topology_takes_sizes_and_the_operator_keeps_the_weighted_mean(sdfeel, averager):
    command = ("topology", "star", "--sizes", "3,1,2", "--averager", averager, "--json")
    mixing = json.loads(sdfeel(*command)[1])["mixing"]
    shares = [3 / 6, 1 / 6, 2 / 6]
    for row, share in zip(mixing, shares, strict=True):
        assert sum(p * m for p, m in zip(row, shares, strict=True)) == pytest.approx(share)


@pytest.mark.parametrize(
    ("scheme", "seconds"),
    [("sd-feel", 0.237344), ("hierfavg", 0.307232), ("fedavg", 0.307232), ("feel", 0.167456)],
)
def test_clock_shows_the_papers_round(sdfeel, scheme, seconds):
    schedule = ("--tau1", "2", "--tau2", "1", "--alpha", "5")
    _, out, _ = sdfeel("clock", "--scheme", scheme, *schedule, "--profile", "paper", "--json")
    assert json.loads(out)["seconds_per_round"] == pytest.approx(seconds, abs=5e-7)


def test_clock_shows_bytes_and_seconds_by_way(sdfeel):
    ways = ("--up", "int8", "--down", "int8", "--between", "float32", "--averager", "all-reduce")
    words = ("clock", *ways, "--profile", "paper-downlink")
    found = json.loads(sdfeel(*words, "--json")[1])
    assert (
        set(found["bytes_per_round"]) == set(found["seconds_by_way"]) == {"up", "down", "between"}
    )
    spent = found["compute"] + sum(found["seconds_by_way"].values())
    assert spent == pytest.approx(found["seconds_per_round"])
    plain = json.loads(sdfeel("clock", "--averager", "all-reduce", "--json")[1])["bytes_per_round"]
    assert found["bytes_per_round"]["up"] / plain["up"] < 0.27
    assert "int8" in sdfeel(*words)[1]


def test_clock_counts_flops_for_the_profile_that_asks_for_it(sdfeel):
    paper = json.loads(sdfeel("clock", "--json")[1])
    counted = json.loads(sdfeel("clock", "--profile", "counted", "--json")[1])
    assert 0 < counted["compute"] < paper["compute"]


def test_run_prints_one_object_at_the_end_and_draws_what_came_out(sdfeel, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):  # a second run does not touch the first
        status, out, _ = sdfeel("run", "mnist-5k", *TINY, "--set", "steps=4", "--json")
        figure = Path(json.loads(out)["figure"])
        assert figure == Path("runs") / f"mnist-5k-{number}" / "curves.png"
        assert figure.stat().st_size > 1000
        assert (figure.parent / "metrics.csv").exists()
    found = json.loads(out)
    assert status == 0
    wanted = {"scheme", "iterations", "seconds", "loss", "accuracy", "client_steps_per_second"}
    assert wanted <= set(found)
    assert found["scheme"] == "sd-feel"
    assert found["iterations"] == 4


def test_run_ends_with_what_came_out_and_what_to_do_next(sdfeel, tmp_path):
    folder = tmp_path / "first"
    status, out, err = sdfeel("run", *TINY, "--set", "steps=4", "--out", folder)
    assert status == 0, err
    assert re.search(r"sd-feel: 4 iterations, simulated [\d.]+ s, loss .*, accuracy .* %", out)
    assert f"see {folder / 'curves.png'}" in out
    assert f"  sdfeel watch {folder}\n" in out
    assert "100 %  done  simulated" in err


def test_run_keeps_a_folder_and_resumes_to_the_same_numbers(sdfeel, tmp_path):
    def run(folder, *more):
        return sdfeel("run", *TINY, "--out", tmp_path / folder, *more, "--json")

    assert run("straight", "--set", "steps=8", "--set", "evaluation.every=2")[0] == 0
    assert run("parts", "--set", "steps=4", "--set", "evaluation.every=2")[0] == 0
    assert run("parts", "--set", "steps=8", "--set", "evaluation.every=2")[0] == 2  # no --resume
    again = run("parts", "--set", "steps=8", "--set", "evaluation.every=2", "--resume")
    assert again[0] == 0
    straight, parts = (pd.read_csv(tmp_path / n / "metrics.csv") for n in ("straight", "parts"))
    pd.testing.assert_frame_equal(straight, parts, check_exact=True)
    config = json.loads((tmp_path / "parts" / "run.json").read_text())
    assert config["schedule"]["tau1"] == 2


def test_compare_writes_figures_a_table_and_a_page_and_does_nothing_twice(sdfeel, tmp_path):
    command = ("compare", "mnist-5k", *TINY, "--schemes", "sd-feel,feel", "--set", "steps=4",
               "--out", tmp_path, "--json")  # fmt: skip
    status, out, _ = sdfeel(*command)
    assert status == 0
    rows = json.loads(out)["runs"]
    assert [row["label"] for row in rows] == ["sd-feel", "feel"]
    for name in ("index.html", "over_time.png", "over_time.svg", "table.md"):
        assert (tmp_path / name).stat().st_size > 0
    before = (tmp_path / "feel" / "checkpoint.safetensors").stat().st_mtime_ns
    assert json.loads(sdfeel(*command)[1])["runs"] == rows
    assert (tmp_path / "feel" / "checkpoint.safetensors").stat().st_mtime_ns == before
    status, out, _ = sdfeel("plot", tmp_path / "feel", "--out", tmp_path / "one.png", "--json")
    assert status == 0
    assert (tmp_path / "one.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--set", "stepz=3"), ["stepz", "did you mean 'steps'"]),
        (("run", "--set", "schedule.tau3=3"), ["schedule.tau3", "tau1"]),
        (("run", "--set", "ratee.name=cosine"), ["ratee", "did you mean 'rate'"]),
        (("run", "--set", "lr=0"), ["lr", "above 0"]),
        (("run", "--set", "schedule.participation=1.5"), ["participation", "1.5"]),
        (("run", "--set", "schedule.alpha=0"), ["alpha", "0"]),
        (("run", "--set", "scheme=sdfeel"), ["scheme", "sd-feel"]),
        (("run", "--set", "steps"), ["--set", "key=value"]),
        (("run", "--set", "model.name=no_such_module:build"), ["no_such_module", "imported"]),
        (("run", "--set", "data.name=mnits"), ["mnits", "mnist"]),
        (("run", "--resume"), ["--resume", "--out"]),
        (("run", "missing.toml"), ["missing.toml", "no such file"]),
        (("run", "--ranks", "0"), ["--ranks", "at least 1"]),
        (("topology", "ring", "--servers", "0"), ["servers", "at least 1"]),
        (("topology", "rign"), ["rign", "did you mean 'ring'"]),
        (("topology", "torus", "--servers", "7"), ["7", "prime"]),
        (("topology", "ring", "--servers", "3", "--sizes", "1,2"), ["--sizes", "3 servers"]),
        (("topology", "ring", "--alpha", "0"), ["alpha", "at least 1"]),
        (("clock", "--profile", "papper"), ["papper", "did you mean 'paper'"]),
        (("clock", "--tau1", "0"), ["tau1", "at least 1"]),
        (("plot", "nowhere"), ["nowhere"]),
        (("compare", "--seeds", "0"), ["--seeds", "at least 1"]),
        (("no-such-command",), ["no-such-command"]),
        (("rum",), ["did you mean 'run'; see `sdfeel --help`"]),
        (("run", "--seeds", "3"), ["--seeds", "see `sdfeel run --help`"]),
    ],
)
def test_a_users_mistake_ends_with_2_and_says_what_would_be_right(sdfeel, arguments, words):
    status, _, err = sdfeel(*arguments)
    assert status == 2, err
    for word in words:
        assert word in err
    assert "Traceback" not in err
    assert any(line.startswith("error: ") for line in err.splitlines())  # one form for all


def test_a_file_in_the_place_of_the_folder_is_said_before_training(sdfeel, tmp_path):
    (tmp_path / "taken").write_text("")
    status, _, err = sdfeel("run", *TINY, "--out", tmp_path / "taken")
    assert status == 2
    assert "folder that can be written" in err


def test_a_run_that_diverges_ends_with_1_and_names_client_and_iteration(sdfeel):
    status, _, err = sdfeel("run", *TINY, "--set", "steps=50", "--set", "lr=1e38")
    assert status == 1
    assert "client" in err
    assert "iteration" in err


def test_a_model_of_ones_own_is_found_beside_the_config(sdfeel, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def build(shape, classes):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    status, out, err = sdfeel(
        "run", *TINY, "--set", "model.name=mine:build", "--set", "steps=2", "--json"
    )
    assert status == 0, err
    assert json.loads(out)["iterations"] == 2


def test_before_the_first_evaluation_no_loss_is_shown_as_the_runs():
    """The first line used to show iteration 2 with the loss of the untrained model."""
    first = {"iteration": 0, "train_loss": 2.3}
    progress = Progress(2, 100, 0.2, 10, 1.0, 0.02, first)
    assert output._line("sd-feel", progress) == "sd-feel    2 %  0:49 left  simulated 0.2 s"


def test_without_a_command_there_is_help_and_no_empty_error(sdfeel):
    _, out, err = sdfeel()
    assert "Usage" in out + err
    assert "error" not in err


def paths_of(command, words=()):
    yield words
    for name, child in getattr(command, "commands", {}).items():
        yield from paths_of(child, (*words, name))


@pytest.mark.parametrize("words", [*paths_of(typer.main.get_command(app))], ids="-".join)
def test_help_fits_80_columns_and_cuts_no_word(sdfeel, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = sdfeel(*words, "--help")
    assert status == 0
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_bars_of_runs_fit_80_columns():
    """The longest labels of the demo, at the longest times."""
    row = {"train_loss": 0.0684, "test_accuracy": 0.958, "iteration": 2000}
    progress = Progress(2000, 100_000, 123_456.7, 10**6, 7200.0, 0.37, row)
    console = Console(width=80, file=io.StringIO())
    console.print(output._bars({"fedavg (shared backhaul)": progress, "sd-feel": progress}))
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 4, "the long label takes two lines"
    assert "123,456.7 s  0.0684    95.8 %" in lines[-1]
    assert "…" not in console.file.getvalue()


def test_help_names_every_command(sdfeel):
    _, out, _ = sdfeel("--help")
    for command in ("run", "compare", "topology", "clock", "data", "plot", "bound", "plan"):
        assert command in out
