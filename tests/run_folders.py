"""Made-up curves and run folders, for the tests of records and reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

MakeCurve = Callable[..., pd.DataFrame]


@pytest.fixture
def curve() -> MakeCurve:
    """A made-up run whose loss falls and whose accuracy rises; `seed` moves values and times."""

    def make(rate: float = 10.0, count: int = 40, seed: int = 0, step: float = 1.5) -> pd.DataFrame:
        rng = np.random.default_rng(seed)
        at = step * np.arange(count) + (rng.uniform(0, step / 2, count) if seed else 0.0)
        left = np.exp(-at / rate)
        return pd.DataFrame(
            {
                "iteration": 50 * np.arange(count),
                "seconds": at,
                "train_loss": 0.2 + 2.1 * left + 0.01 * seed,
                "test_accuracy": 0.95 - 0.85 * left - 0.01 * seed,
                "disagreement": 0.1 * left,
            }
        )

    return make


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """A run folder as a run leaves it."""

    def write(
        metrics: pd.DataFrame, name: str = "run", summary: bool = True, **config: Any
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        settings = {"scheme": "sd-feel", "lr": 0.01, "schedule": {"tau1": 2}, "seed": 0} | config
        (folder / "run.json").write_text(json.dumps(settings))
        (folder / "environment.json").write_text(json.dumps({"python": "3.11", "seed": 0}))
        metrics.to_csv(folder / "metrics.csv", index=False)
        if summary:
            ended = {"scheme": settings["scheme"], "iterations": 100, "loss": 0.5, "accuracy": 0.8}
            (folder / "summary.json").write_text(json.dumps(ended))
        return folder

    return write
