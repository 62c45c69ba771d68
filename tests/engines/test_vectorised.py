from __future__ import annotations

import numpy as np
import pytest
import torch
from worlds import classification, vector

import sdfeel
from sdfeel import Schedule
from sdfeel.engines import vectorised

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


@pytest.mark.parametrize(
    ("clients", "sizes"),
    [
        (1, [1]), (15, [15]), (16, [8, 8]), (17, [9, 8]), (25, [13, 12]), (26, [13, 13]),
        (50, [25, 25]), (51, [17, 17, 17]),
    ],
)  # fmt: skip
def test_chunks_are_of_one_size_and_two_where_that_is_worth_it(
    clients: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many cores there are: two of them would not share a chunk of 16 as well."""
    found = []

    def steps(engine, models, work, positions) -> np.ndarray:
        found.append(positions)
        models[torch.from_numpy(positions)] = 0.0
        return np.zeros((len(positions), 1))

    monkeypatch.setattr(vectorised.VectorisedEngine, "_steps", steps)
    world = classification((3,) * clients, [list(range(clients))])
    sdfeel.train(
        world.model, world.datasets, network=world.network, schedule=Schedule(1, 1, 1), steps=1,
        batch_size=3, engine="vectorised", evaluate_every=1,
    )  # fmt: skip
    found = found[1:]  # without the trial of one client, before anything else
    assert sorted(map(len, found), reverse=True) == sizes
    assert sorted(np.concatenate(found)) == list(range(clients))


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
