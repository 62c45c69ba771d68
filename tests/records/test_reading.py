from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sdfeel.errors import InputError
from sdfeel.records.reading import (
    DEEPEST,
    RunRecord,
    UnusableFile,
    read_object,
    read_regular,
    read_run,
)
from sdfeel.reports.settings import compare_settings, group_runs


def test_a_run_reads_back_as_it_was_written(write_run, curve):
    record = read_run(write_run(curve()))
    pd.testing.assert_frame_equal(record.metrics, curve())
    assert record.scheme == "sd-feel"
    assert record.config["schedule"] == {"tau1": 2}
    assert record.environment["python"] == "3.11"
    assert record.summary is not None
    assert record.summary["accuracy"] == 0.8


def test_what_was_not_taken_is_nan_and_what_nobody_took_is_absent(write_run, curve):
    folder = write_run(curve(), summary=False)
    (folder / "environment.json").unlink()
    text = "iteration,seconds,train_loss\n0,0,\n50,1.5,2\n100,3,nan\n150,4,inf\n"
    (folder / "metrics.csv").write_text(text)
    record = read_run(str(folder))
    np.testing.assert_array_equal(record.metrics["train_loss"], [np.nan, 2, np.nan, np.inf])
    assert "test_accuracy" not in record.metrics
    assert record.summary is None
    assert record.environment == {}


def test_a_run_before_its_second_evaluation_is_a_run(write_run, curve):
    assert len(read_run(write_run(curve(count=1))).metrics) == 1


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("run.json", b'{"scheme": ', "damaged"),
        ("run.json", b"[1, 2]", "one JSON object"),
        ("run.json", b"\xff\xfe\x00", "damaged"),
        ("environment.json", b"", "damaged"),
        ("summary.json", b"3", "one JSON object"),
        ("metrics.csv", b"", "damaged"),
        ("metrics.csv", b"seconds\n1\n", "'iteration'"),
        ("metrics.csv", b"iteration,train_loss\n0,1\n50,1e\n", "line 3, column 'train_loss'"),
        ("metrics.csv", b"iteration,train_loss\n0,1\n1,2,3,4\n", "damaged"),
        ("metrics.csv", b"iteration\n50\n0\n", "never fall"),
        ("metrics.csv", b"iteration,seconds\n,0\n", "whole"),
        ("metrics.csv", b"iteration,seconds\n0.5,0\n", "whole"),
        ("metrics.csv", b"iteration,seconds\ninf,0\n", "whole"),
        ("metrics.csv", b"iteration\n\xff\n", "damaged"),
    ],
)
def test_damage_is_named(write_run, curve, name, content, says):
    folder = write_run(curve())
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        read_run(folder)
    assert name in str(caught.value)


@pytest.mark.parametrize("name", ["run.json", "metrics.csv"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(write_run, curve, tmp_path, name, kind):
    """Also a link within the folder is none: it could lead elsewhere a moment later."""
    folder = write_run(curve())
    (folder / name).rename(folder / "before")
    if kind == "link":
        (folder / name).symlink_to(folder / "before")
    elif kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).mkdir()
    with pytest.raises(InputError, match=r"regular file|no run\.json|first evaluation"):
        read_run(folder)


def test_the_bounds_of_a_file_are_where_they_say(tmp_path):
    """At the limit, and one beyond it: bytes and levels."""
    file = tmp_path / "x.json"
    file.write_bytes(b"{}  ")
    assert read_regular(file, 4) == b"{}  "
    with pytest.raises(UnusableFile, match="larger than 3 bytes"):
        read_regular(file, 3)
    for levels in (DEEPEST, DEEPEST + 1):
        file.write_text('{"a": ' + "[" * (levels - 2) + "1" + "]" * (levels - 2) + "}")
        if levels == DEEPEST:
            assert "a" in read_object(file)
        else:
            with pytest.raises(UnusableFile, match="deeper than"):
                read_object(file)


def test_a_file_without_a_size_is_read_to_its_bound(tmp_path):
    """Files of the system say that they have 0 bytes."""
    with pytest.raises(UnusableFile, match="larger"):
        read_regular(Path("/proc/self/status"), 10)


def test_folders_that_are_no_runs(tmp_path, write_run, curve):
    with pytest.raises(InputError, match="must be a folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no run\.json"):
        read_run(tmp_path)
    folder = write_run(curve())
    (folder / "metrics.csv").unlink()
    with pytest.raises(InputError, match="first evaluation"):
        read_run(folder)


def record(tmp_path, **config) -> RunRecord:
    return RunRecord(tmp_path, config, pd.DataFrame({"iteration": [0]}))


def test_runs_that_differ_in_their_seed_share_a_label(tmp_path):
    one, two = (record(tmp_path, scheme="sd-feel", seed=s, data={"seed": s}) for s in (0, 1))
    rival = record(tmp_path, scheme="fedavg", seed=0)
    assert group_runs([one, rival, two]) == {"sd-feel": [one, two], "fedavg": [rival]}


def test_labels_say_what_differs(tmp_path):
    runs = [record(tmp_path, scheme="sd-feel", lr=0.1, schedule={"tau1": t}) for t in (1, 3)]
    assert list(group_runs(runs)) == ["sd-feel, tau1 1", "sd-feel, tau1 3"]
    extra = [record(tmp_path, scheme="a"), record(tmp_path, scheme="a", x=1)]
    assert list(group_runs(extra)) == ["a", "a, x 1"]


def test_labels_leave_out_how_often_a_run_was_evaluated_if_they_can(tmp_path):
    def run(tau1, every):
        schedule, evaluation = {"tau1": tau1}, {"every": every}
        return record(tmp_path, scheme="a", schedule=schedule, evaluation=evaluation)

    assert list(group_runs([run(3, 30), run(20, 100)])) == ["a, tau1 3", "a, tau1 20"]
    assert list(group_runs([run(3, 30), run(3, 60)])) == ["a, every 30", "a, every 60"]


def test_what_runs_share_and_what_they_do_not():
    shared, differing = compare_settings(
        {
            "a": {"lr": 0.1, "schedule": {"tau1": 2, "alpha": 1}},
            "b": {"lr": 0.1, "schedule": {"tau1": 2, "alpha": 5}, "own": True},
        }
    )
    assert shared == {"lr": 0.1, "schedule.tau1": 2}
    assert differing == [
        {"setting": "schedule.alpha", "a": 1, "b": 5},
        {"setting": "own", "a": None, "b": True},
    ]
    json.dumps(differing)
