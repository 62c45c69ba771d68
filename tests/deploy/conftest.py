"""The helpers beside the tests are plain modules."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Whoever runs the tests may ignore SIGHUP, as nohup does; programs that they start would, too.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For deployments on the network in memory.

    Loops and tasks are full of circles: looking for them all the time costs a fifth.
    """
    from twin_world import make_edges_cheap

    make_edges_cheap(monkeypatch)
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
