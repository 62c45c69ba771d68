"""Threads of torch that wait must not take the cores of an engine that has threads of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: how many threads it has is asked for. OpenMP's end a little after they
# are told to, so they are waited for; one that never does is a failure, not a hanging test.
PROGRAM = """
import os, time
import torch
from sdfeel.engines.idle_cores import _runtimes, free_cores

def threads():
    return len(os.listdir("/proc/self/task"))

torch.set_num_threads(3)
before = threads()
numbers = torch.arange(2**20, dtype=torch.float64)
print(len(_runtimes()))
for _ in range(2):  # what was ended comes back, and can be ended again
    total = float((numbers * 2).sum())
    assert total == 2**20 * (2**20 - 1), total
    print(threads() - before)
    free_cores()
    end = time.monotonic() + 30
    while threads() > before and time.monotonic() < end:
        os.sched_yield()
    print(threads() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by /proc")
def test_threads_that_wait_are_ended_and_come_back() -> None:
    own = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=own, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    runtimes, begun, left, begun_again, left_again = map(int, done.stdout.split())
    assert runtimes >= 1
    assert begun == begun_again == 2
    assert left == left_again == 0


@pytest.mark.parametrize("policy", ["PASSIVE", "passive"])
def test_threads_that_sleep_are_left_alone(policy: str) -> None:
    """They cost nothing, and ending them would."""
    from sdfeel.engines import idle_cores

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", policy)
        idle_cores._runtimes.cache_clear()
        try:
            assert idle_cores._runtimes() == []
        finally:
            idle_cores._runtimes.cache_clear()


@pytest.mark.parametrize("running", [0, 1, 3])
def test_a_process_is_still_once_no_other_thread_runs(
    running: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sdfeel.engines import idle_cores

    left = iter([True] * running + [False])
    monkeypatch.setattr(idle_cores, "PATIENCE", float("inf"))
    monkeypatch.setattr(idle_cores, "_others_run", lambda: next(left))
    idle_cores.still()
    assert next(left, "asked until then") == "asked until then"


def test_threads_that_never_sleep_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from sdfeel.engines import idle_cores

    monkeypatch.setattr(idle_cores, "PATIENCE", 0.0)
    monkeypatch.setattr(idle_cores, "_others_run", lambda: True)
    idle_cores.still()
