from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_consensus(run) -> None:
    lines = run("consensus.py").splitlines()
    assert lines[0] == "Network(10 clients, 10 servers, 10 links), zeta = 0.8257"
    header = lines[2].split()
    assert header == ["exchange", "paper", "metropolis", "chebyshev", "finite-time", "all-reduce"]
    first, fifth, tenth = (lines[3 + number].split() for number in (0, 5, 10))
    assert set(first[1:]) == {"1.0e+00"}
    assert float(fifth[4]) < 1e-12  # finite-time is done
    assert 0.01 < float(tenth[1]) < 0.1472  # the paper's, below its bound
    assert float(tenth[3]) < 0.0034  # chebyshev, below its own


def test_own_scheme(run) -> None:
    lines = run("own_scheme.py").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:5]}
    assert list(rows) == ["sd-feel", "edge-all-reduce", "hierfavg", "isolated"]
    seconds = {name: float(row[0]) for name, row in rows.items()}
    assert seconds["isolated"] < seconds["edge-all-reduce"] < seconds["hierfavg"]
    worst = {name: int(row[2].rstrip("%")) for name, row in rows.items()}
    assert worst["isolated"] < min(worst["sd-feel"], worst["edge-all-reduce"])


def test_own_optimizer(run) -> None:
    """At most 40 lines, and the same numbers in every engine."""
    assert len((EXAMPLES / "own_optimizer.py").read_text().splitlines()) <= 40
    lines = run("own_optimizer.py").splitlines()
    losses = [float(line.split()[-1]) for line in lines]
    assert max(losses[:4]) - min(losses[:4]) <= 2e-4
    assert max(losses[4:]) - min(losses[4:]) <= 2e-4
    assert losses[4] < 0.95 * losses[0]


def test_own_model(run, tmp_path: Path) -> None:
    lines = run("own_model.py", str(tmp_path)).splitlines()
    rows = [line.split() for line in lines[1:] if line.strip() and line.split()[0].isdigit()]
    errors = [float(row[3]) for row in rows[:-1]]
    assert errors[-1] < 0.6 * errors[0]
    assert lines[-1].startswith("3 towns, one model")
    assert (tmp_path / "forecast.png").stat().st_size > 1000


def test_examples_use_the_public_names_only() -> None:
    for path in EXAMPLES.glob("*.py"):
        for line in path.read_text().splitlines():
            if line.startswith("from sdfeel"):
                assert line.startswith("from sdfeel import "), f"{path.name}: {line}"


def test_every_example_is_tested() -> None:
    tested = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in tested


def test_errata(run) -> None:
    """Each counterexample contradicts what the paper says."""
    text = run("errata.py")
    assert "columns sum to [1.0, 1.0, 1.0]" in text
    assert "rows to [1.632, -0.158, 1.526]" in text
    numbers = dict(line.strip().rsplit(" ", 1) for line in text.splitlines())
    norm = float(numbers["the operator norm is"])
    weighted = float(numbers["the norm weighted by the clusters' shares is"])
    assert norm > 1.05 * weighted
    assert f"zeta is {weighted}" in text
    assert float(numbers["zeta = 0 for a full graph: here it is"]) > 0.4
    assert "this layout has 31,340 parameters" in text
    assert "Lemma 1) gives clients [0.045, 0.145]" in text
    assert "Algorithm 1 gives [0.095, 0.095]" in text
    assert float(numbers["sdfeel gives"]) == pytest.approx(0.095)
    assert "rounds are 0.808 s" in text
    assert "what happens takes 0.599 s" in text
    difference = "FedAvg lags far behind HierFAVG at tau2 = 1: their losses differ by"
    assert float(numbers[difference]) < 1e-4
