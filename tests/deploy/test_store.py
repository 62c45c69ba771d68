"""Vectors, models on the wire and durable checkpoints."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from sdfeel.deploy.model.files import Layout, ModelFile
from sdfeel.deploy.model.state_dict import write_state_dict
from sdfeel.deploy.model.store import EdgeCheckpoint, Store, read_safetensors, write_safetensors
from sdfeel.deploy.model.vectors import (
    BLOCK,
    Change,
    NotFinite,
    as_vector,
    combine,
    distance,
    probe,
)
from sdfeel.deploy.wire import frames
from sdfeel.errors import InputError

ABOUT = {"deployment": "test", "edge": "a"}
SIZES = [1, 13, BLOCK, 2 * BLOCK, 2 * BLOCK + 1, 3 * BLOCK + 7]


def values(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_a_vector_is_its_values_in_memory_and_in_a_file(tmp_path: Path, size: int) -> None:
    array = values(size)
    vector = as_vector(array, tmp_path)
    assert np.array_equal(vector.array(), array)
    assert vector.sha256 == hashlib.sha256(array.tobytes()).digest()
    assert list(tmp_path.iterdir()) == [], "the file has no name"


@pytest.mark.parametrize("size", SIZES)
def test_combine_is_the_weighted_sum(size: int) -> None:
    a, b = values(size, 1), values(size, 2)
    found = combine([as_vector(a), as_vector(b)], [1.5, -0.5]).array()
    assert np.array_equal(found, (1.5 * a.astype(float) - 0.5 * b.astype(float)).astype("f4"))


def test_distance_and_probe_are_linear_measures() -> None:
    a, b = values(BLOCK * 3, 1), values(BLOCK * 3, 2)
    apart = np.linalg.norm(a.astype(float) - b) / np.linalg.norm(a.astype(float))
    assert distance(as_vector(a), as_vector(b)) == pytest.approx(apart)
    mixed = combine([as_vector(a), as_vector(b)], [0.25, 0.75])
    expected = 0.25 * probe(as_vector(a)) + 0.75 * probe(as_vector(b))
    assert probe(mixed) == pytest.approx(expected, rel=1e-4)


@given(size=st.integers(1, 3 * BLOCK), seed=st.integers(0, 9))
def test_what_is_sent_is_what_arrives(size: int, seed: int) -> None:
    vector = as_vector(values(size, seed))
    incoming = frames.Incoming(frames.header(vector, 1), size, 1e9)
    arrived = [incoming.begin(), *(incoming.feed(chunk) for chunk in frames.chunks(vector))]
    assert len(arrived) == 1 or size > BLOCK, "what fits a chunk goes with its header"
    assert arrived[:-1] == [None] * (len(arrived) - 1)
    assert np.array_equal(arrived[-1].array(), vector.array())


def test_a_model_file_is_safetensors_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    array = values(3 * BLOCK)
    write_safetensors(path, as_vector(array), {"note": "x"})
    assert np.array_equal(load_file(path)["model"], array)
    model, notes = read_safetensors(path, array.size)
    assert notes["note"] == "x"
    assert np.array_equal(model.array(), array)
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="damaged"):
        read_safetensors(path)
    path.write_bytes(damaged[:-4])
    with pytest.raises(InputError, match="cut short"):
        read_safetensors(path)
    with pytest.raises(InputError, match="cannot be used"):
        read_safetensors(tmp_path / "missing")


def test_checkpoints_are_durable_before_save_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Temporary file, fsync, rename, fsync of the folder: in this order."""
    calls: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        calls.append(f"fsync {kind}")
        real_fsync(descriptor)

    def replace(self: Path, target: Path) -> Path:
        calls.append("rename")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    store = Store(tmp_path, ABOUT)
    store.save(EdgeCheckpoint(1, as_vector(values(5)), {"checkpoint": 1}))
    assert calls == ["fsync file", "rename", "fsync folder"]


def test_the_newest_whole_checkpoint_is_loaded_and_old_ones_go(tmp_path: Path) -> None:
    store = Store(tmp_path, ABOUT)
    assert store.load(5) == (None, [])
    for done in (1, 2, 3):
        store.save(EdgeCheckpoint(done, as_vector(values(5, done)), {"checkpoint": done}))
    assert store.periods() == [1, 2, 3], "the last two, and one that is older"
    found, problems = store.load(5)
    assert found is not None
    assert (found.done, found.agreement, problems) == (3, {"checkpoint": 3}, [])
    (tmp_path / "period-000000004.safetensors").write_bytes(b"half")
    (tmp_path / "period-000000005.safetensors.tmp").write_bytes(b"a crash")
    again = Store(tmp_path, ABOUT)
    again.acquire()
    assert not (tmp_path / "period-000000005.safetensors.tmp").exists()
    found, problems = again.load(5)
    assert found is not None
    assert found.done == 3
    assert len(problems) == 1
    assert again.periods() == [1, 2, 3], "what is damaged is put aside"
    with pytest.raises(InputError, match="another deployment"):
        Store(tmp_path, {"edge": "b"}).load(5)


@pytest.mark.parametrize("size", [13, 3 * BLOCK + 7])
def test_what_links_remember_lies_beside_the_model(tmp_path: Path, size: int) -> None:
    a, b, c = (values(size, n) for n in range(3))
    own, theirs, model = as_vector(a), as_vector(b), as_vector(c)
    change = Change.towards(own, theirs, 0.25)
    store = Store(tmp_path, ABOUT, history=0)
    store.save(EdgeCheckpoint(7, model, {}, [change, -change]))
    found, problems = store.load(size)
    assert found is not None
    assert not problems
    assert np.array_equal(found.model.array(), c)
    expected = 0.25 * (b.astype(float) - a)
    for kept, sign in zip(found.changes, (1, -1), strict=True):
        assert kept is not None
        applied = kept.applied(model).array()
        np.testing.assert_allclose(applied, c + sign * expected, atol=1e-6)
    store.save(EdgeCheckpoint(8, model, {}, found.changes))
    again, _ = Store(tmp_path, ABOUT).load(size)
    assert again is not None
    assert again.changes[1] is not None
    np.testing.assert_allclose(again.changes[1].applied(model).array(), c - expected, atol=1e-6)
    store.save(EdgeCheckpoint(9, model))
    assert bool(list(tmp_path.glob("*.kept"))) == (size > 2 * BLOCK), "period 8 may be gone back to"
    store.save(EdgeCheckpoint(10, model))
    assert not list(tmp_path.glob("*.kept")), "nobody needs them any more"


def test_small_changes_are_written_with_the_model(tmp_path: Path) -> None:
    store = Store(tmp_path, ABOUT)
    change = Change((as_vector(values(5, 1)),), (2.0,))
    store.save(EdgeCheckpoint(7, as_vector(values(5)), {}, [change, change]))
    (path,) = tmp_path.iterdir()
    assert set(load_file(path)) == {"model", "sdfeel/change-0", "sdfeel/change-1"}
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
    assert store.load(5)[0] is None


@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_large_changes_may_be_lost_in_a_power_cut_and_the_model_is_not(
    tmp_path: Path, harm: str
) -> None:
    size = 3 * BLOCK
    model, own, theirs = (as_vector(values(size, n), tmp_path) for n in range(3))
    store = Store(tmp_path, ABOUT)
    store.save(EdgeCheckpoint(7, model, {}, [Change.towards(own, theirs, 0.5)]))
    kept = sorted(tmp_path.glob("*.kept"))
    assert len(kept) == 2
    if harm == "gone":
        kept[0].unlink()
    else:
        data = kept[0].read_bytes()
        kept[0].unlink()
        kept[0].write_bytes(data[:-4] if harm == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    found, problems = store.load(size)
    assert found is not None
    assert list(found.changes) == [None]
    assert len(problems) == 1
    assert np.array_equal(found.model.array(), model.array())


def test_a_sum_that_overflows_is_no_model() -> None:
    """Each of two is finite; what would replace a model is looked at before it does."""
    large = as_vector(np.full(5, 3e38, dtype=np.float32))
    with pytest.raises(NotFinite):
        combine([large, large], [1.0, 1.0])
    assert np.isfinite(combine([large, large], [0.5, 0.5]).array()).all()


def test_models_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Checkpoints, what links remember beside them, and what is exported, whatever the umask."""
    folder = tmp_path / "state" / "a"
    store = Store(folder, {"edge": "a"})
    before = os.umask(0)
    try:
        store.acquire()
        large = as_vector(np.ones(3 * BLOCK), folder)
        store.save(EdgeCheckpoint(1, large, {}, [Change((large,), (1.0,))]))
        store.prepare(1, large)
        store.begin_from(1)
        write_state_dict(
            tmp_path / "out.safetensors", ModelFile(Layout.flat(large.size), large), large, {}
        )
    finally:
        os.umask(before)
        store.release()
    files = [path for path in folder.iterdir() if path.name != "lock"]
    assert {path.suffix for path in files} == {".safetensors", ".undone", ".kept"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "out.safetensors").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_an_edge_goes_on_from_is_flushed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after renaming a checkpoint and before its name was flushed, it told its neighbours
    of it in its next life; a power cut then took it away, and the mean moved.
    """
    Store(tmp_path, {}).save(EdgeCheckpoint(1, as_vector(values(3))))
    flushed: list[int] = []
    fsync = os.fsync

    def flush(number: int) -> None:
        flushed.append(os.fstat(number).st_ino)
        fsync(number)

    monkeypatch.setattr(os, "fsync", flush)
    store = Store(tmp_path, {})
    assert store.load(3)[0] is not None
    assert not flushed, "who only looks writes nothing"
    store.acquire()
    assert store.load(3)[0] is not None
    assert tmp_path.stat().st_ino in flushed
    store.release()
