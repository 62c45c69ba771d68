"""`sdfeel bench`: flags, JSON keys, and the files that it writes."""

import json
import sys

import pytest
from typer.testing import CliRunner

from sdfeel.cli import app, bench, main
from sdfeel.errors import InputError
from speed import suite

RATIO = {"median": 12.0, "low": 11.0, "high": 13.0, "repetitions": 5}
ROW = {
    "first_start_seconds": 1.0,
    "peak_gb": 0.3,
    "steps_per_second": RATIO,
    "vs_loop": RATIO,
    "vs_loop_all_cores": None,
    "share_of_matmul": RATIO,
}


@pytest.fixture
def asked(monkeypatch):
    """The extents that were asked for; nothing is measured."""
    extents = []

    def pretend(extent, say):
        extents.append(extent)
        say("measuring")
        setting = {"about": "a CNN", "short": "CNN", "clients": 50, "rows": {"fast": ROW}}
        return {
            **dict.fromkeys(suite.KEYS),
            "fast_vs_loop": 12.0,
            "details": {
                "machine": {"cores": 2},
                "settings": {"mnist": setting},
                "ratios": {"fast_vs_loop": RATIO},
            },
        }

    monkeypatch.setattr(suite, "run_bench", pretend)
    return extents


def run(*words):
    return CliRunner().invoke(
        app, ["bench", *words], catch_exceptions=False, env={"COLUMNS": "200"}
    )


def test_json_has_exactly_the_keys_that_scripts_rely_on(asked):
    found = json.loads(run("--quick", "--json").stdout)
    assert set(found) == {
        "fast_vs_loop", "fast_vs_loop_all_cores", "cifar_fast_vs_loop", "mlp_fast_vs_loop",
        "growth_10000", "rss_gb_10000", "ranks_2_vs_1", "share_of_matmul", "auto_vs_loop",
        "losses_vs_softmax", "adam_vs_sgd", "layers_vs_loop", "details",
    }  # fmt: skip
    assert found["fast_vs_loop"] == 12
    assert found["growth_10000"] is None
    assert asked == [suite.QUICK]


def test_people_read_tables(asked):
    text = run().stdout
    assert "12 (11–13)" in text
    assert "a CNN, 50 clients" in text
    assert asked == [suite.FULL]


def test_files_are_written_only_when_asked_for(asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("--quick")
    assert list(tmp_path.iterdir()) == []
    run("--quick", "--out", "docs")
    assert {path.name for path in (tmp_path / "docs").iterdir()} == {
        "performance.md", "performance.png",
    }  # fmt: skip


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(asked, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="folder"):
        run("--out", str(tmp_path / "file" / "docs"))
    assert asked == []


def test_the_deployment_has_a_benchmark_of_its_own(asked, monkeypatch):
    deploy = pytest.importorskip("deployment.costs")
    monkeypatch.setattr(deploy, "run", lambda quick: {"overhead_ms_small": 3.0 if quick else 4.0})
    assert json.loads(run("deploy", "--quick", "--json").stdout) == {"overhead_ms_small": 3.0}
    assert "overhead_ms_small" in run("deploy").stdout
    assert asked == []


@pytest.mark.parametrize("words", [[], ["deploy"]])
def test_without_the_repository_one_sentence_says_where_benchmarks_are(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(bench, "BENCHMARKS", tmp_path / "benchmarks")
    monkeypatch.setattr(sys, "argv", ["sdfeel", "bench", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "come with the repository" in said
    assert "make setup" in said


def test_a_million_clients_are_measured_alone(asked, monkeypatch):
    from speed import million

    numbers = {"seconds": 40.0, "gigabytes": 1.5, "steps_per_second": 12_000.0}
    monkeypatch.setattr(million, "million", lambda: {**numbers, "phases": {"evaluation": 1.0}})
    assert json.loads(run("--million", "--json").stdout)["million"]["gigabytes"] == 1.5
    assert "12,000" in run("--million").stdout.replace("1.2e+04", "12,000")
    assert asked == []
