"""What an edge keeps on its disk: nothing wrong is ever loaded, and one edge at a time has it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from harness import World, deploy
from hypothesis import given
from hypothesis import strategies as st

from sdfeel.deploy.edge.edge import EdgeServer
from sdfeel.deploy.model.files import Frozen, Layout, read_model, write_model
from sdfeel.deploy.model.store import EdgeCheckpoint, Store, worth_keeping
from sdfeel.deploy.model.vectors import BLOCK, Change, Vector, as_vector
from sdfeel.deploy.operate.rollback import histories, roll_back
from sdfeel.errors import InputError, RunError

ABOUT = {"deployment": "test", "edge": "a"}


def model(seed: int = 0, size: int = 5):
    return as_vector(np.random.default_rng(seed).normal(size=size).astype(np.float32))


def saved(folder: Path, *periods: int) -> Store:
    store = Store(folder, ABOUT)
    store.acquire()
    for period in periods:
        links = {"b": {"ledger": [[period, 0]]}}
        store.save(EdgeCheckpoint(period, model(period), links, [Change((model(9),), (0.5,))]))
    return store


def test_one_wrong_byte_anywhere_leads_to_the_checkpoint_before(tmp_path: Path) -> None:
    """Header, notes, values and hashes alike: each byte in turn."""
    store = saved(tmp_path, 4, 5)
    newest = tmp_path / "period-000000005.safetensors"
    whole = newest.read_bytes()
    for place in range(len(whole)):
        newest.write_bytes(whole[:place] + bytes([whole[place] ^ 2]) + whole[place + 1 :])
        found, problems = store.load(5)
        assert found is not None
        assert (found.done, len(problems)) == (4, 1), place
        newest.write_bytes(whole)


@pytest.mark.parametrize("length", [0, 7, 8, 9, 100, -1, -4, -21])
def test_a_cut_checkpoint_leads_to_the_one_before(tmp_path: Path, length: int) -> None:
    store = saved(tmp_path, 4, 5)
    newest = tmp_path / "period-000000005.safetensors"
    newest.write_bytes(newest.read_bytes()[:length])
    assert store.load(5)[0].done == 4


def test_the_number_of_a_period_cannot_be_changed(tmp_path: Path) -> None:
    """Found by operating: one digit of `done` changed made all edges jump."""
    store = saved(tmp_path, 4, 5)
    newest = tmp_path / "period-000000005.safetensors"
    changed = newest.read_bytes().replace(b'"done": "5"', b'"done": "7"')
    assert changed != newest.read_bytes()
    newest.write_bytes(changed)
    assert store.load(5)[0].done == 4


def test_the_name_of_a_checkpoint_agrees_with_its_content(tmp_path: Path) -> None:
    store = saved(tmp_path, 4, 5)
    (tmp_path / "period-000000004.safetensors").replace(tmp_path / "period-000000970.safetensors")
    found, problems = store.load(5)
    assert found.done == 5
    assert "970" in problems[0]


def test_damaged_checkpoints_do_not_push_good_ones_out(tmp_path: Path) -> None:
    """They count as newest by their names; what is saved after them must still be kept."""
    store = saved(tmp_path, 8, 9)
    for path in tmp_path.glob("period-*"):
        path.write_bytes(b"half")
    assert store.load(5)[0] is None
    store.save(EdgeCheckpoint(1, model()))
    found, problems = store.load(5)
    assert (found.done, problems) == (1, [])
    assert len(list(tmp_path.glob("*.damaged"))) == 2, "for whoever wants to look"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["model", "change"])
def test_what_could_not_be_read_back_is_never_written(
    tmp_path: Path, bad: float, where: str
) -> None:
    store = saved(tmp_path, 4)
    values = np.zeros(5, dtype=np.float32)
    values[3] = bad
    spoiled = as_vector(values)
    change = Change((spoiled if where == "change" else model(),), (1.0,))
    with pytest.raises(RunError, match="infinity"):
        store.save(EdgeCheckpoint(5, spoiled if where == "model" else model(), {}, [change]))
    assert store.load(5)[0].done == 4
    assert not list(tmp_path.glob(".*")), "nothing half-written stays"


def test_a_write_may_take_less_than_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1000])))
    values = np.random.default_rng(1).normal(size=3 * BLOCK).astype(np.float32)
    assert np.array_equal(as_vector(values, tmp_path).array(), values)


@given(
    steps=st.lists(st.sampled_from([1, 1, 1, 2, 7, 100]), min_size=1, max_size=300),
    history=st.integers(0, 6),
)
def test_the_history_reaches_back_and_stays_small(steps: list[int], history: int) -> None:
    """However an edge jumps: the last two are there, and each kept one is one that was there."""
    present: list[int] = []
    period = 0
    for step in steps:
        period += step
        before = [*present, period]
        present = worth_keeping(before, history)
        assert set(present) <= set(before)
        assert present[-2:] == before[-2:]
        assert len(present) <= 2 + history
    if history and len(set(steps)) == 1 and len(steps) > 4**history:
        assert present[-1] - present[0] >= 4 ** (history - 1) * steps[0]


def test_a_rollback_puts_newer_checkpoints_aside_until_training_has_passed_them(
    tmp_path: Path,
) -> None:
    store = saved(tmp_path, *range(1, 31))
    older = [period for period in store.periods() if period <= 20]
    assert older, "the history has something to go back to"
    assert store.roll_back(20) == older[-1]
    found, problems = store.load(5)
    assert (found.done, problems) == (older[-1], [])
    assert list(tmp_path.glob("*.undone"))
    for period in range(older[-1] + 1, 33):
        store.save(EdgeCheckpoint(period, model(period)))
    assert not list(tmp_path.glob("*.undone"))
    with pytest.raises(InputError, match="period = 0"):
        store.roll_back(0)


def test_after_a_rollback_links_remember_what_they_did_then(tmp_path: Path) -> None:
    """Large models that a link remembers have files of their own: those of all checkpoints that
    can be gone back to stay, also over a restart, and no others.
    """
    size = 2 * BLOCK + 1  # what is smaller stays in memory, and in the checkpoint

    def large(n: int) -> Vector:
        return as_vector(np.full(size, n, dtype=np.float32), tmp_path)

    store = Store(tmp_path, {"edge": "a"})
    for period in range(1, 31):
        if period == 20:
            store = Store(tmp_path, {"edge": "a"})
        changes = [Change((large(period), large(-period)), (0.5, 0.25))]
        store.save(EdgeCheckpoint(period, large(period), {}, changes))
    assert len(list(tmp_path.glob("*.kept"))) == 2 * len(store.periods())
    oldest = store.periods()[0]
    assert oldest < 20
    assert store.roll_back(oldest) == oldest
    found, problems = store.load(size)
    assert not problems
    assert [vector.array()[0] for vector in found.changes[0].vectors] == [oldest, -oldest]


def test_a_second_instance_of_an_edge_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything in the folder is touched; when the first has ended, it may."""
    deployment = deploy(tmp_path, sizes=(1,), periods=2)
    state = tmp_path / "state" / "a"

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            leftover = state / "period-000000001.safetensors.tmp"
            leftover.write_bytes(b"being written")
            with pytest.raises(InputError, match=rf"in use by edge a \(process {os.getpid()}\)"):
                EdgeServer(deployment, "a", state)
            assert leftover.exists()
            await world.kill("a")
            await world.start_edge("a")
            assert not leftover.exists()

    asyncio.run(run())


def test_a_state_of_another_edge_is_refused_by_name(tmp_path: Path) -> None:
    saved(tmp_path, 3).release()
    with pytest.raises(InputError, match="state: edge = 'a'"):
        Store(tmp_path, {**ABOUT, "edge": "b"}).load(5)


def test_a_model_file_has_names_shapes_and_what_is_not_trained(tmp_path: Path) -> None:
    """As any reader of safetensors sees it, mapped or not."""
    from safetensors.numpy import load, load_file

    path = tmp_path / "m.safetensors"
    layout = Layout(("a.weight", "a.bias", "empty"), ((2, 3), (1,), (0, 4)))
    steps = np.array([5, 7], dtype="<i8")
    constants = {
        "flag": Frozen("BOOL", (1,), b"\x01"),
        "half": Frozen("F16", (1,), np.float16(2).tobytes()),
        "steps": Frozen("I64", (2,), steps.tobytes()),
    }
    write_model(path, layout, model(size=7), {"note": "x"}, constants=constants)
    found = load_file(path)
    assert np.array_equal(found["a.weight"].ravel(), model(size=7).array()[:6])
    assert found["a.weight"].shape == (2, 3)
    assert np.array_equal(found["steps"], steps)
    assert set(load(path.read_bytes())) == {*layout.names, *constants}
    again = read_model(path, constants=True)
    assert (again.layout, again.constants, again.notes) == (layout, constants, {"note": "x"})
    assert read_model(path).constants == {}
    damaged = path.read_bytes()
    path.write_bytes(damaged.replace(steps.tobytes(), np.array([5, 8], dtype="<i8").tobytes()))
    with pytest.raises(InputError, match="sha256 of a tensor"):
        read_model(path, constants=True)


def test_edges_go_back_to_a_period_that_all_of_them_have(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), secure=False)
    for name, periods in (("a", (3, 4, 6, 9)), ("b", (3, 5, 6, 8))):
        store = Store(tmp_path / "state" / name, {**ABOUT, "edge": name})
        store.acquire()
        for period in periods:
            store.save(EdgeCheckpoint(period, model(period)))
        store.release()
    assert {3, 6} <= set(histories(deployment)["a"]) & set(histories(deployment)["b"])
    with pytest.raises(InputError, match="there are"):
        roll_back(deployment, 2)
    running = Store(tmp_path / "state" / "b", ABOUT)
    running.acquire()
    with pytest.raises(InputError, match="in use"):
        roll_back(deployment, 8)
    assert histories(deployment)["a"][-1] == 9, "all or none"
    running.release()
    assert roll_back(deployment, 8) == {"a": 6, "b": 6}
    assert [periods[-1] for periods in histories(deployment).values()] == [6, 6]
