from __future__ import annotations

import gc
import os

import pytest
import torch
from hypothesis import HealthCheck, settings
from worlds import Problem, classification

# Several workers share few cores: a second thread on models this small only gets in the way.
torch.set_num_threads(1)

# No deadline and no complaint about slow draws: a loaded machine is not a wrong program.
settings.register_profile(
    "local", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def small() -> Problem:
    """Six clients of unequal size in three clusters, four features, three classes, float32."""
    return classification(samples=(12, 5, 9, 20, 4, 7), clusters=[[0, 3], [1, 2, 4], [5]])


def pytest_collection_finish() -> None:
    """What is there now stays: no look for garbage needs to go through torch and all tests."""
    gc.collect()
    gc.freeze()
