"""The benchmark: an honest baseline, ratios from one run, and what it says and writes."""

import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
import torch

from sdfeel.engines.choose import ENGINES
from sdfeel.engines.engine import Work
from sdfeel.engines.reference import ReferenceEngine
from sdfeel.errors import InputError, RunError
from speed import growth, kinds, measuring, ranks, suite
from speed.auto import auto_against_loop
from speed.jobs import Job, make_contender, simulation_of
from speed.measuring import Measured, measure, ratio, spread
from speed.plain_loop import PlainLoop
from speed.report import bench_tables, write_bench
from speed.suite import FULL, KEYS, QUICK, run_bench
from speed.zoo import ZOO

TINY = Job("plain-loop", model="mlp", width=8, clients=3, samples=20)
# All that is measured, with little that is computed.
WHOLE = replace(FULL, topologies=(10,), widths=(5, 10))
# Client steps a second that the stubs pretend, so that every ratio is known.
RATES = {"plain loop": 100.0, "plain loop, all cores": 180.0, "fast": 1500.0}


@pytest.mark.parametrize(
    "job", [TINY, replace(TINY, model="mnist-cnn"), replace(TINY, model="cifar-cnn")]
)
def test_the_plain_loop_trains_the_same_models_as_the_reference_engine(job):
    problem = simulation_of(job).problem
    loop = PlainLoop(problem)
    engine = ReferenceEngine(problem)
    expected = problem.layout.vector(problem.model).repeat(job.clients, 1)
    ones = np.ones(job.clients, dtype=np.int64)
    for first, last in ((1, 2), (3, 6)):
        loop.local_updates(first, last)
        start = expected.clone(), np.arange(job.clients)
        engine.train(Work(np.arange(job.clients), first * ones, last * ones, start), expected)
    found = torch.stack([problem.layout.vector(model) for model in loop.models])
    assert not torch.allclose(found[0], problem.layout.vector(problem.model), atol=1e-4)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_plain_loop_refuses_clients_that_hold_no_more_than_a_batch():
    with pytest.raises(ValueError, match="more samples"):
        PlainLoop(simulation_of(replace(TINY, samples=10)).problem)


@pytest.mark.parametrize("kind", ["plain-loop", "plain-loop-onednn-off", "auto", *ENGINES])
def test_every_contender_counts_client_steps_and_time(kind):
    before = torch.backends.mkldnn.enabled
    try:
        contender = make_contender(replace(TINY, kind=kind, aggregate=True))
        units, parts = contender.run(2)
    finally:
        torch.backends.mkldnn.enabled = before
    assert units == 2 * TINY.tau1 * TINY.clients
    assert parts["work"] > 0


def test_an_unknown_contender_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'fast'"):
        make_contender(replace(TINY, kind="fasst"))


def test_a_ratio_pairs_the_measurements_of_the_same_repetition():
    # The machine became half as fast in the second repetition: the ratio does not move.
    one = Measured(units=[100, 100, 100], seconds=[1, 2, 1])
    other = Measured(units=[50, 50, 50], seconds=[1, 2, 1])
    found = ratio(one, other)
    assert (found.median, found.low, found.high, found.repetitions) == (2, 2, 2, 3)
    assert ratio(one, Measured(unsupported="no compiler")) is None


def test_a_spread_is_the_median_with_least_and_most():
    found = spread([3.0, 1.0, 10.0])
    assert found.as_dict() == {"median": 3.0, "low": 1.0, "high": 10.0, "repetitions": 3}


def test_contenders_are_asked_in_turn_and_every_second_time_in_the_opposite_order(monkeypatch):
    asked = []

    class Team:
        def __init__(self, jobs):
            self.name, self.measured = jobs[0]["name"], Measured()

        def get_ready(self): ...

        def settle(self, seconds, segments): ...

        def repeat(self):
            asked.append(self.name)

        def end(self): ...

        def __enter__(self):
            return self

        def __exit__(self, *_): ...

    monkeypatch.setattr(measuring, "_Team", Team)
    measure({name: [{"name": name}] for name in "abc"}, repetitions=3, seconds=1)
    assert "".join(asked) == "abc" + "cba" + "abc"


def test_real_processes_are_measured_and_one_that_cannot_says_why(monkeypatch, tmp_path):
    jobs = {
        "loop": [TINY.as_dict()] * 2,  # two processes that make up one contender
        "fast": [replace(TINY, kind="fast").as_dict()],
    }
    monkeypatch.setenv("SDFEEL_CC", str(tmp_path / "no-such-compiler"))
    found = measure(jobs, repetitions=2, seconds=0.01)
    assert "SDFEEL_CC" in found["fast"].unsupported
    assert len(found["loop"].rates) == 2
    assert found["loop"].peak_gb > 0.1
    assert found["loop"].first_start > 0
    assert found["loop"].units[0] % (2 * TINY.clients * TINY.tau1) == 0


def test_a_process_that_fails_is_an_error_with_its_last_words():
    with pytest.raises(RunError, match=r"ended early.*no-such-model"):
        measure({"loop": [replace(TINY, model="no-such-model").as_dict()]}, 1, 0.01)


def pretend(teams, repetitions, seconds, segments=None):
    """Measurements without processes; each repetition the machine is another one."""
    found = {}
    for name, jobs in teams.items():
        rate = RATES.get(name, 3e10 if "product" in name else 800.0)
        if jobs[0]["clients"] == 10_000:
            rate = 700.0
        moods = [1 + 0.3 * math.sin(n) for n in range(repetitions)]
        found[name] = Measured(
            units=[rate * mood for mood in moods],
            seconds=[1.0] * repetitions,
            parts=[{"local updates": 0.8, "aggregation": 0.1, "work": 1.0}] * repetitions,
            cpu_seconds=[1.0] * repetitions,
            peak_gb=1.5,
            first_start=2.0,
        )
    return found


@pytest.fixture
def pretended(monkeypatch):
    monkeypatch.setattr(measuring, "measure", pretend)

    def answer(settings, threads, *flags):
        return {"client_steps_per_second": 190.0 if "--ranks" in flags else 100.0}

    monkeypatch.setattr(ranks, "sdfeel_run", answer)
    monkeypatch.setattr(
        kinds, "kinds_against_softmax", lambda names, _: dict.fromkeys(names, spread([0.9, 1.0]))
    )


@pytest.mark.usefixtures("pretended")
def test_the_full_benchmark_answers_every_key():
    found = run_bench(WHOLE)
    assert list(found) == [*KEYS, "details"]
    assert found["fast_vs_loop"] == pytest.approx(15)
    assert found["fast_vs_loop_all_cores"] == pytest.approx(1500 / 180)
    assert found["growth_10000"] == pytest.approx(800 / 700)
    assert found["rss_gb_10000"] == 1.5
    assert found["ranks_2_vs_1"] == pytest.approx(1.9)
    assert set(found["losses_vs_softmax"]) == set(FULL.losses)
    assert found["adam_vs_sgd"]["adam"] == pytest.approx(0.95)
    details = found["details"]
    flops = details["settings"]["mnist"]["flops_per_step"]
    assert found["share_of_matmul"] == pytest.approx(1500 * flops / 3e10)
    assert {"processor", "cores", "torch", "load_before", "load_after"} <= set(details["machine"])
    assert details["ratios"]["fast_vs_loop"]["repetitions"] == FULL.repetitions >= 5
    assert details["profile"]["shares"]["local updates"] == pytest.approx(0.8)
    json.dumps(found, allow_nan=False)


def test_losses_and_optimizers_are_measured_beside_softmax():
    found = kinds.kinds_against_softmax(["mse"], replace(QUICK, seconds=0.01, repetitions=2))
    assert set(found) == {"mse"}
    assert found["mse"].repetitions == 2
    assert found["mse"].low > 0


@pytest.mark.usefixtures("pretended")
def test_the_quick_benchmark_leaves_the_rest_open():
    found = run_bench(QUICK)
    assert list(found) == [*KEYS, "details"]
    measured = {key for key in KEYS if found[key] is not None}
    assert measured == {*KEYS[:4], "share_of_matmul", *KEYS[-4:]}
    assert set(found["auto_vs_loop"]) == set(ZOO)
    assert QUICK.repetitions >= 5


def test_models_are_measured_in_several_starts_and_chosen_for_once(monkeypatch):
    """A start lasts: one that is slow by chance must not decide, and repeating it does not help."""
    rates = iter([60.0, 90.0, 95.0])
    asked = []

    def measured(teams, repetitions, seconds):
        asked.append(teams["auto"][0]["kind"])
        auto = Measured(units=[next(rates)] * 3, seconds=[1.0] * 3, engine="loop")
        return {"loop": Measured(units=[100.0] * 3, seconds=[1.0] * 3), "auto": auto}

    monkeypatch.setattr(measuring, "measure", measured)
    found = auto_against_loop("gru", replace(QUICK, zoo_starts=3))
    assert asked == ["auto", "loop", "loop"]
    assert found["ratio"] == {"median": 0.9, "low": 0.6, "high": 0.95, "repetitions": 3}
    assert found["engine"] == "loop"


@pytest.mark.usefixtures("pretended")
def test_without_a_compiler_the_benchmark_still_answers(monkeypatch):
    def without_fast(teams, repetitions, seconds, segments=None):
        found = pretend(teams, repetitions, seconds, segments)
        return {
            name: Measured(unsupported="no C compiler")
            if jobs[0]["kind"] == "fast"
            else found[name]
            for name, jobs in teams.items()
        }

    monkeypatch.setattr(measuring, "measure", without_fast)
    found = run_bench(WHOLE)
    assert found["fast_vs_loop"] is None
    assert found["growth_10000"] is None
    tables = dict(bench_tables(found))
    assert any("no C compiler" in str(rows) for rows in tables.values())


@pytest.mark.usefixtures("pretended")
def test_tables_say_what_is_measured_with_its_spread():
    tables = dict(bench_tables(run_bench(WHOLE)))
    short = {row["key"]: row["median (least–most)"] for row in tables["In short"]}
    assert list(short) == list(suite.RATIOS)
    assert short["fast_vs_loop"].startswith("15")
    speeds = next(rows for title, rows in tables.items() if title.startswith("CNN of 21,840"))
    fast = next(row for row in speeds if row[""] == "fast")
    assert "(" in fast["client steps/s"]
    assert fast["memory"] == "1.50 GB"
    assert fast["first start"] == "2.00 s"


@pytest.mark.usefixtures("pretended")
def test_a_document_keeps_its_words_when_it_is_measured_again(tmp_path):
    found = run_bench(WHOLE)
    text, picture = write_bench(found, tmp_path / "docs")
    assert picture.read_bytes().startswith(b"\x89PNG")
    first = text.read_text()
    text.write_text(
        first.replace("# Performance\n", "# Performance\n\nWords of ours.\n") + "End.\n"
    )
    write_bench(found, tmp_path / "docs")
    again = text.read_text()
    assert "Words of ours." in again
    assert again.endswith("End.\n")
    assert again.count("| fast_vs_loop |") == first.count("| fast_vs_loop |") == 1


@pytest.mark.usefixtures("pretended")
def test_a_document_without_the_marks_is_not_overwritten(tmp_path):
    (tmp_path / "performance.md").write_text("Mine.\n")
    with pytest.raises(InputError, match="measured: begin"):
        write_bench(run_bench(QUICK), tmp_path)
    assert (tmp_path / "performance.md").read_text() == "Mine.\n"
    assert not (tmp_path / "performance.png").exists()


def test_two_ranks_are_measured_beside_one_each_time(monkeypatch):
    rates = iter([100.0, 190.0, 50.0, 90.0])
    asked = []

    def answer(settings, threads, *flags):
        asked.append((threads, flags))
        return {"client_steps_per_second": next(rates)}

    monkeypatch.setattr(ranks, "sdfeel_run", answer)
    found = ranks.ranks_against_one(steps=10, repetitions=2)
    assert found["ratios"] == pytest.approx([1.9, 1.8])
    assert asked == [(1, ()), (1, ("--ranks", "2"))] * 2
    assert found["one"]["median"] == statistics.median([100, 50])


def test_topology_work_is_timed_for_every_averager():
    assert {"graph", "mixing matrix", "paper", "finite-time"} <= set(growth.topology_seconds(6))
