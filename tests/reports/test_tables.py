from __future__ import annotations

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from sdfeel.errors import InputError
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.reports import compare_table, time_to
from sdfeel.reports.rendering import column_headings, html_table, markdown_table, rich_table


def test_time_to_special_cases():
    frame = pd.DataFrame(
        {
            "iteration": [0, 10, 20, 30],
            "seconds": [0.0, 1.0, 2.0, 3.0],
            "test_accuracy": [0.1, np.nan, 0.5, 0.4],
            "test_error": [0.9, 0.7, 0.5, 0.6],
        }
    )
    assert time_to(frame, "test_accuracy", 0.3) == pytest.approx(1.0)
    assert time_to(frame, "test_accuracy", 0.05) == 0
    assert time_to(frame, "test_accuracy", 0.6) is None
    assert time_to(frame, "absent", 0.6) is None
    assert time_to(frame, "test_error", 0.6, x="iteration") == pytest.approx(15)
    assert time_to(frame, "test_error", 0.95, falling=False) is None
    assert time_to(frame.iloc[:0], "test_accuracy", 0.1) is None


def test_one_row_per_label(curve):
    rows = compare_table({"a": curve(10), "b": curve(30)}, accuracies=[0.8, 0.9])
    assert [row["label"] for row in rows] == ["a", "b"]
    assert rows[0]["iterations"] == 1950
    assert rows[0]["accuracy"] == pytest.approx(curve(10)["test_accuracy"].iloc[-1])
    assert rows[0]["seconds_to_accuracy_0.8"] < rows[1]["seconds_to_accuracy_0.8"]
    assert rows[0]["seconds_to_accuracy_0.9"] == time_to(curve(10), "test_accuracy", 0.9)
    assert rows[1]["seconds_to_accuracy_0.9"] is None
    assert "seeds" not in rows[0]
    assert json.loads(json.dumps(rows)) == rows


def untested(frame):
    return frame.rename(columns={"test_accuracy": "train_accuracy"})


def test_times_are_those_of_the_accuracy_that_the_levels_are_of(curve):
    """Levels were once taken from the training samples and times from the test samples: never."""
    (row,) = compare_table({"a": untested(curve(5))})
    (tested,) = compare_table({"a": curve(5)})
    times = {key: time for key, time in row.items() if key.startswith("seconds_to")}
    assert times == {key: tested[key] for key in times}
    assert len(times) == 3
    assert None not in times.values()
    assert row["accuracy"] == tested["accuracy"]
    assert row["accuracy_of"] == "training samples"
    assert "accuracy_of" not in tested


def test_a_table_says_on_which_samples_an_accuracy_is(curve):
    header, _, first, second = markdown_table(
        compare_table({"a": untested(curve()), "b": curve()})
    ).splitlines()
    assert "| accuracy |" in header
    assert "test accuracy" not in header
    assert "| training samples |" in first
    assert "test accuracy" not in str(column_headings(compare_table({"a": untested(curve())})[0]))
    table = rich_table(compare_table({"a": untested(curve())}))
    assert not [column.header for column in table.columns if "test" in str(column.header)]
    assert "| test samples |" in second


def test_levels_follow_the_best_run(curve):
    (row,) = compare_table({"a": curve(5)})
    times = [key for key in row if key.startswith("seconds_to")]
    assert times == [f"seconds_to_accuracy_{level}" for level in ("0.76", "0.85", "0.9")]


def test_seeds_become_medians(curve):
    seeds = [curve(seed=seed) for seed in (0, 1, 2)]
    row, lone = compare_table({"a": seeds, "b": curve(20)}, accuracies=[0.93])
    ends = [frame["test_accuracy"].iloc[-1] for frame in seeds]
    assert (row["seeds"], lone["seeds"]) == (3, 1)
    assert row["accuracy"] == pytest.approx(np.median(ends))
    assert (row["accuracy_min"], row["accuracy_max"]) == (min(ends), max(ends))
    assert row["seconds_to_accuracy_0.93"] == time_to(seeds[1], "test_accuracy", 0.93)
    # Two of three seeds never get there, so the median never does.
    assert compare_table({"a": seeds}, accuracies=[0.945])[0]["seconds_to_accuracy_0.945"] is None


def test_runs_with_missing_columns(write_run, curve):
    bare = read_run(write_run(curve()[["iteration", "seconds"]]))
    (row,) = compare_table({"bare": bare})
    assert row["scheme"] == "sd-feel"
    assert (row["loss"], row["accuracy"]) == (0.5, 0.8)  # the summary's
    (row,) = compare_table({"barer": curve()[["iteration"]]})
    assert row["seconds"] is row["loss"] is row["accuracy"] is row["disagreement"] is None
    assert "–" in markdown_table([row])
    assert json.loads(json.dumps([row])) == [row]


def test_a_diverged_run_stays_json(curve):
    frame = curve().assign(train_loss=np.inf)
    (row,) = compare_table({"a": frame})
    assert row["loss"] is None


def test_nothing_to_compare(curve):
    with pytest.raises(InputError, match="at least one run"):
        compare_table({})
    with pytest.raises(InputError, match="under each label"):
        compare_table({"a": []})


def test_markdown(curve):
    rows = compare_table({"a|b\n<i>": curve(), "c": curve(20)}, accuracies=[0.9])
    head, rule, first, *_ = markdown_table(rows).splitlines()
    assert head.startswith("| run | iterations | simulated s | training loss | test accuracy")
    assert head.endswith("| s to 90 % |")
    assert rule.count("---:") == 6
    assert r"| a\|b &lt;i&gt; |" in first
    assert "| 94.8 % |" in first
    assert markdown_table([]) == ""


def test_a_backslash_cannot_free_a_pipe():
    line = markdown_table([{"label": "x\\|y"}]).splitlines()[-1]
    assert line == "| x\\\\\\|y |"


def test_scheme_is_shown_where_labels_do_not_say_it(curve, tmp_path):
    run = RunRecord(tmp_path, {"scheme": "sd-feel"}, curve())
    assert "| scheme |" in markdown_table(compare_table({"tau1 = 3": run}))
    assert "| scheme |" not in markdown_table(compare_table({"sd-feel, tau1 = 3": run}))


def test_rich_fits_a_terminal(curve):
    labels = ["sd-feel", "hierfavg", "fedavg (shared backhaul)", "[red]feel"]
    rows = compare_table({label: [curve(9), curve(9, seed=1)] for label in labels})
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(rich_table(rows, title="Results"))
    text = console.file.getvalue()
    assert "…" not in text
    assert "[red]feel" in text
    assert "medians of 2 seeds" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("94.4 %") == 4
    assert "iterations" in text  # no word is broken
    assert "simulated" in text


def test_seconds_are_simulated_and_never_in_another_unit():
    """A column in which 90 s and 20 min stand below each other cannot be read downwards."""
    text = markdown_table([{"seconds": 0.237344}, {"seconds": 90.04}, {"seconds": 2742.31}])
    assert text.splitlines() == [
        "| simulated s |", "| ---: |", "| 0.237 |", "| 90.0 |", "| 2,742.3 |",
    ]  # fmt: skip


def test_html_shows_the_spread_and_escapes(curve):
    rows = compare_table({"<b>&": [curve(), curve(seed=1)]})
    text = html_table(rows)
    assert "<td>&lt;b&gt;&amp;</td>" in text
    assert '<span class="spread">' in text
    assert html_table([]) == ""
    assert '<td class="number">1,000</td>' in html_table([{"x (y) z": 1000}])


def test_any_rows_can_be_shown():
    rows = [
        {"claim": "ring < full", "verdict": "pass", "value": 0.123456, "sure": True},
        {"claim": "more", "value": float("nan"), "list": [1, 2]},
    ]
    text = markdown_table(rows)
    assert "| ring &lt; full | pass | 0.1235 | yes | – |" in text
    assert "| more | – | – | – | 1, 2 |" in text
