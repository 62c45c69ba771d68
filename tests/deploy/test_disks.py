"""Disks that are full or read-only, of the state and of the log: nobody ends, and it is told."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import toy
from harness import Process, World, as_toml, deploy, import_path

from sdfeel.deploy.facts import logs
from sdfeel.deploy.facts.facts import DiskProblem, Stopped
from sdfeel.deploy.facts.logs import LONGEST, Log, LogFile
from sdfeel.deploy.model import store as stores
from sdfeel.deploy.model import vectors
from sdfeel.deploy.model.vectors import BLOCK, as_vector, combine
from sdfeel.deploy.operate.status import ask, exit_status
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.wire import frames


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE])
def test_a_full_state_disk_makes_an_edge_wait_and_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Paused: nothing is acknowledged, log, metric and status say so; then it goes on by itself."""
    deployment = deploy(tmp_path, sizes=(1, 1), periods=200)
    full: set[str] = set()
    real = stores.write_model

    def write(path: Path, *rest: object, **rows: object) -> None:
        if path.parent.name in full:
            raise OSError(number, os.strerror(number), str(path))
        real(path, *rest, **rows)

    monkeypatch.setattr(stores, "write_model", write)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            a = world.edges["a"]
            await world.until(lambda: a.done >= 2)
            full.add("a")
            await world.until(lambda: a.phase == "paused")
            done, accepted = a.done, len(world.clients["c0"].accepted)
            rows = await ask(deployment, timeout=10.0)
            assert rows[0].phase == "paused"
            assert exit_status(rows) == 3, "a script sees it, too"
            assert a.metrics.value("sdfeel_state_disk_problem") == 1
            assert a.done == done
            assert len(world.clients["c0"].accepted) <= done
            full.clear()
            await world.finish()
            (problem,) = world.events("disk-problem", "a")
            assert os.strerror(number) in problem["reason"]
            assert world.events("disk-relief", "a")
            assert a.metrics.value("sdfeel_state_disk_problem") == 0
            assert len(world.clients["c0"].accepted) > accepted
            assert world.audit() > 0
        assert not a.carrier.saver.problem

    asyncio.run(run())


def test_an_edge_that_waits_for_its_disk_can_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=6)

    def write(*_: object, **_rows: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(stores, "write_model", write)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_all()
            await world.until(lambda: world.edges["a"].phase == "paused")
            async with asyncio.timeout(60):
                await world.kill("a")

    asyncio.run(run())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 kB, where the machine lets us mount one."""
    place = tmp_path / "state"
    place.mkdir()
    mount, umount = (shutil.which(name) or "/bin/false" for name in ("mount", "umount"))
    command = [mount, "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(place)]
    if subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no right to mount a small disk here")
    yield place
    subprocess.run([umount, "-l", str(place)], check=True)


def test_a_really_full_disk(tmp_path: Path, small_disk: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=8)

    async def run() -> None:
        async with World(deployment) as world:
            slow = toy.ToyTrainer(0, deployment.clients[0].samples, delay=0.05)
            await world.start_edge("a")
            world.start_client("c0", slow)
            a = world.edges["a"]
            await world.until(lambda: a.done >= 1)
            filler = small_disk / "filler"
            with pytest.raises(OSError, match="No space"):
                filler.write_bytes(b"0" * 2**20)
            await world.until(lambda: a.phase == "paused")
            filler.unlink()
            await world.finish()
            assert a.done == 8
            assert world.events("disk-problem", "a")

    asyncio.run(run())


def test_without_room_models_from_outside_are_refused_and_own_ones_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = (as_vector(np.full(3 * BLOCK, n, dtype=np.float32), tmp_path) for n in (1, 3))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(vectors, "write_all", refuse)
    assert combine([a, b], [0.5, 0.5], tmp_path).array()[-1] == 2
    incoming = frames.Incoming(frames.header(a, 1), a.size, 1e9, tmp_path)
    data = a.read_bytes(0, BLOCK)
    with pytest.raises(Refused, match="No space") as refusal:
        incoming.feed(frames.v1.Chunk(offset=0, data=data))
    assert refusal.value.kind == "disk"
    with pytest.raises(Refused, match="No such file"):
        frames.Incoming(frames.header(a, 1), a.size, 1e9, tmp_path / "gone")


def test_a_full_log_disk_never_ends_a_node() -> None:
    log = Log("a", LogFile(Path("/dev/full")))
    for period in range(3):
        log.add(Stopped(period=period))
    assert log.unwritten == 3
    assert [line["period"] for line in log.recent] == [0, 1, 2]


@contextmanager
def room_for(room: int) -> Iterator[None]:
    """A disk that takes so many bytes and no more."""
    real = os.write

    def write(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "full")
        written = real(descriptor, data[:room])
        room -= written
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        yield


def test_lines_wait_until_there_is_room_again(tmp_path: Path) -> None:
    """In their order, with the times at which they were made; one that was cut comes whole."""
    path = tmp_path / "a.jsonl"
    with LogFile(path) as file:
        log = Log("a", file)
        with room_for(25):
            log.add(Stopped(period=1))
            log.add(Stopped(period=2))
            assert log.unwritten == 2
        log.add(Stopped(period=3))
        assert log.unwritten == 0
    cut, *whole = path.read_text().splitlines()
    assert len(cut) == 25
    told = [json.loads(line) for line in whole]
    assert [line["event"] for line in told] == [*3 * ["stopped"], "log-relief"]
    assert [line["period"] for line in told[:-1]] == [1, 2, 3]
    assert told == log.recent
    assert told[-1]["count"] == 2


def test_lines_beyond_what_memory_keeps_are_lost_and_told_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "KEPT", 2)
    path = tmp_path / "a.jsonl"
    with LogFile(path) as file:
        log = Log("a", file)
        log.add(Stopped(period=1))
        with room_for(0):
            for period in (2, 3, 4, 5):
                log.add(Stopped(period=period))
            assert log.unwritten == 4
        log.add(Stopped(period=6))
        assert log.unwritten == 3
    told = [json.loads(line) for line in path.read_text().splitlines()]
    first, lost, *late, relief = told
    assert (lost["event"], lost["count"]) == ("log-lost", 3)
    assert [line["period"] for line in (first, *late)] == [1, 5, 6]
    assert relief["event"] == "log-relief"


def test_a_line_that_a_dead_process_has_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with LogFile(path) as file, room_for(25):
        Log("a", file).add(Stopped(period=1))
    with LogFile(path) as file:
        Log("a", file).add(Stopped(period=2))
    cut, whole = path.read_text().splitlines()
    assert len(cut) == 25
    assert json.loads(whole)["period"] == 2


def test_a_log_whose_stream_was_closed_is_no_reason_to_end(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as stream:
        log = Log("a", stream)
    log.add(Stopped(period=1))
    assert log.unwritten == 1


@pytest.mark.timeout(60)
def test_a_reader_of_the_log_that_stands_still_does_not_stop_the_node(tmp_path: Path) -> None:
    path, most = tmp_path / "pipe", 2000
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with LogFile(path) as file, os.fdopen(reader, "rb") as lines:
        log = Log("a", file)
        for period in range(most):
            log.add(Stopped(period=period))
        assert log.unwritten > 0, "a pipe holds 64 kB"
        text = b""
        while log.unwritten:
            text += lines.read() or b""
            asyncio.run(log.drain())
        text += lines.read() or b""
    told = [json.loads(line) for line in text.splitlines()]
    assert [line["period"] for line in told] == [*range(most)]


def test_a_text_that_a_peer_chose_is_shortened() -> None:
    log = Log("a", None)
    log.add(DiskProblem(reason="x" * 130_000))
    assert len(log.recent[0]["reason"]) < LONGEST + 40


def test_a_hangup_reopens_the_log(tmp_path: Path) -> None:
    """As logrotate does it: rename, SIGHUP. The edge goes on in a new file."""
    deployment = deploy(tmp_path, sizes=(1,), periods=4)
    file = tmp_path / "deployment.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    log, old = tmp_path / "a.jsonl", tmp_path / "a.jsonl.1"
    command = [sys.executable, "-m", "sdfeel", "edge", str(file), "a", "--log", str(log)]
    environment = {**os.environ, "PYTHONPATH": import_path()}

    async def run() -> None:
        async with World(deployment) as world:
            edge = subprocess.Popen(command, env=environment)
            try:
                await world.until(lambda: log.exists() and "listening" in log.read_text())
                log.rename(old)
                edge.send_signal(signal.SIGHUP)
                await world.until(log.exists)
                world.start_client("c0")
                await world.until(lambda: "finished" in log.read_text())
                edge.terminate()  # it stays until it is told to go
                assert edge.wait(60) == 0
            finally:
                edge.kill()
                edge.wait()
            assert "client-up" not in old.read_text()

    asyncio.run(run())


def test_a_node_whose_standard_output_is_full_goes_on(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=3)

    async def run() -> None:
        async with World(deployment) as world:
            with Path("/dev/full").open("w") as full:
                node = Process(world, "edge", "a", out=full)
            world.start_client("c0")
            await world.until(lambda: node.process.poll() is not None)
            assert node.process.returncode == 0
            await world.finish()
            assert len(world.clients["c0"].accepted) == 3

    asyncio.run(run())
