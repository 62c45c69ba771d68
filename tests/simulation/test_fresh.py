"""Random transforms stay random, and what they draw is a function of (seed, client, k)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdfeel
from sdfeel.data import ClientData, Fresh, RandomTransformWarning
from sdfeel.engines.engine import Work
from sdfeel.engines.plain import PlainUpdates
from sdfeel.engines.problem import make_problem
from sdfeel.errors import InputError

NETWORK = sdfeel.Network.ring(servers=3, clients_per_server=2)
OWN = {"network": NETWORK, "lr": 0.1, "batch_size": 3}


class Jittered:
    """As torchvision's: noise from torch, numpy and `random`, all drawn in `__getitem__`."""

    def __init__(self, samples: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._x = torch.rand(samples, 4, generator=generator)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        noise = torch.rand(4) + np.random.rand() + random.random()  # noqa: NPY002, S311
        return self._x[index] + noise.float(), index % 2


def clients(sizes: tuple[int, ...] = (3, 5, 2, 7, 4, 6)) -> list[Fresh]:
    return [Fresh(Jittered(size, seed)) for seed, size in enumerate(sizes)]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 2)


def weights(result: sdfeel.Result) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in result.model.parameters()])


def test_without_fresh_a_transform_is_frozen_and_with_it_not() -> None:
    frozen = [each.dataset for each in clients()]
    torch.manual_seed(1)
    with pytest.warns(RandomTransformWarning, match=r"sdfeel\.data\.Fresh"):
        other = weights(sdfeel.train(model(), frozen, steps=4, engine="reference", **OWN))
    fresh = weights(sdfeel.train(model(), clients(), steps=4, engine="reference", **OWN))
    assert not torch.equal(fresh, other)
    # A client with one batch of data would see the same batch at every k.
    data = ClientData.from_datasets(clients())
    rows = torch.arange(3)
    first, again, later = (data.batch(0, rows, number)[0] for number in (7, 7, 8))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)


def test_the_same_draws_in_both_engines_after_a_resume_and_whatever_was_drawn_before(
    tmp_path: Any,
) -> None:
    wanted = weights(sdfeel.train(model(), clients(), steps=6, engine="reference", **OWN))
    torch.manual_seed(99)
    random.seed(99)
    loop = sdfeel.train(model(), clients(), steps=6, engine="loop", **OWN)
    assert torch.equal(weights(loop), wanted)
    kept = {**OWN, "engine": "reference", "out": tmp_path / "run"}
    sdfeel.train(model(), clients(), steps=3, **kept)
    gone_on = sdfeel.train(model(), clients(), steps=6, resume=True, **kept)
    assert torch.equal(weights(gone_on), wanted)


def test_global_generators_are_left_as_they_were() -> None:
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    wanted = torch.rand(1), random.random(), np.random.rand()  # noqa: S311, NPY002
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    ClientData.from_datasets(clients()).batch(1, torch.tensor([4, 5]), 3)
    assert (torch.rand(1), random.random(), np.random.rand()) == wanted  # noqa: S311, NPY002


def test_a_rank_with_some_of_the_clients_draws_what_one_process_draws() -> None:
    """And so does a client of a deployment, whose store holds its own data only."""
    own = {"batch_size": 3, "seed": 4}
    whole = make_problem(model(), ClientData.from_datasets(clients()), **own)
    held = np.array([1, 3, 4])
    part = ClientData.from_datasets([clients()[i] for i in held])
    some = make_problem(model(), part, client_numbers=held, **own)
    start = whole.layout.vector(whole.model)
    ends = np.full(3, 5)
    found = []
    for problem, places in ((whole, held), (some, np.arange(3))):
        rows = start.repeat(3, 1)
        begin = rows.clone(), np.arange(3)
        PlainUpdates(problem).carry_out(rows, Work(places, ends - 4, ends, begin))
        found.append(rows)
    assert torch.equal(*found)
    assert torch.equal(whole.data.select(held).batch(2, torch.tensor([12]), 1)[0],
                       part.batch(2, torch.tensor([12]), 1)[0])  # fmt: skip


@pytest.mark.parametrize("engine", ["fast", "vectorised"])
def test_engines_that_cannot_say_why_and_the_loop_takes_over(
    engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = sdfeel.train(model(), clients(), steps=2, engine=engine, **OWN)
    assert found.engine == "loop"
    assert f"{engine} does not support this: samples are read anew" in caplog.text


def test_one_dataset_for_all_is_shared_out_and_stays_fresh() -> None:
    whole = Fresh(Jittered(24, 0))
    parts = [list(range(i, 24, 6)) for i in range(6)]
    one = sdfeel.train(model(), whole, partition=parts, steps=3, engine="reference", **OWN)
    by_hand = [Fresh(torch.utils.data.Subset(whole.dataset, part)) for part in parts]
    two = sdfeel.train(model(), by_hand, steps=3, engine="reference", **OWN)
    assert torch.equal(weights(one), weights(two))
    named = sdfeel.train(model(), whole, partition="iid", steps=1, engine="reference", **OWN)
    assert named.iterations == 1


def test_what_cannot_be_read_again_or_changes_its_shape_is_named() -> None:
    with pytest.raises(InputError, match="a map-style dataset"):
        Fresh(iter([1]))

    class Cropped(Jittered):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            x, y = super().__getitem__(index)
            return x[: 4 - self.cut], y

        cut = 0

    data = Cropped(4, 0)
    store = ClientData.from_datasets([Fresh(data)])
    data.cut = 1
    with pytest.raises(InputError, match=r"a sample of client 0 = \(3,\): was \(4,\) at first"):
        store.batch(0, torch.arange(2), 0)


def test_several_fresh_clients_are_not_shared_out_again() -> None:
    with pytest.raises(InputError, match=r"give one Fresh\(dataset\)"):
        sdfeel.train(model(), ClientData.from_datasets(clients()), partition="iid", steps=1, **OWN)
