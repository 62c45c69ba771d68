from __future__ import annotations

import numpy as np
import pytest
import torch
from worlds import classification, vector

import sdfeel
from sdfeel import Schedule
from sdfeel.simulation.engines import vectorised

pytestmark = pytest.mark.filterwarnings("ignore::sdfeel.api.NegativeMixingWarning")


def run(chunk: int | None, monkeypatch: pytest.MonkeyPatch) -> sdfeel.Result:
    if chunk:
        monkeypatch.setattr(vectorised, "CHUNK_CLIENTS", chunk)
    problem = classification(
        (12, 5, 9, 20, 4, 7, 11), [[0, 3, 6], [1, 2, 4], [5]], hidden=6, dtype=torch.float64
    )
    return sdfeel.train(
        problem.model,
        problem.datasets,
        network=problem.network,
        schedule=Schedule(4, 2, 1),
        steps=30,
        lr=0.1,
        batch_size=6,
        participation=0.8,
        engine="vectorised",
    )


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
def test_the_size_of_a_chunk_changes_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by the chunk; the numbers must not know of it."""
    whole, parts = run(None, monkeypatch), run(chunk, monkeypatch)
    np.testing.assert_allclose(vector(parts.model), vector(whole.model), atol=1e-13)
    np.testing.assert_allclose(
        parts.history["batch_loss"][1:], whole.history["batch_loss"][1:], rtol=1e-12
    )


def test_a_large_model_goes_through_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectorised, "CHUNK_NUMBERS", 3 * 2 * 57)
    sizes = []
    steps = vectorised.VectorisedEngine._steps
    monkeypatch.setattr(
        vectorised.VectorisedEngine,
        "_steps",
        lambda *given: sizes.append(len(given[-1])) or steps(*given),
    )
    run(None, monkeypatch)
    assert max(sizes) == 2
