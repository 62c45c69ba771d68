"""A program that is told to stop ends, whatever is in the way of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import import_path

# What stands between a program and its end.
PROGRAMS = {
    "swallowed": """
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                pass
    """,
    "blocked": "time.sleep(100)",
    "tidies-for-ever": """
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.Event().wait()
    """,
    "tidies": """
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.5)
            print("tidy", flush=True)
    """,
    "worker": "await asyncio.to_thread(time.sleep, 100)",
    "thread": """
        threading.Thread(target=time.sleep, args=(100,)).start()
        await asyncio.sleep(100)
    """,
    "finaliser": """
        atexit.register(time.sleep, 100)
        await asyncio.sleep(100)
    """,
    "teardown": """
        class Slow:
            def __del__(self, sleep=time.sleep):
                sleep(4)
        sys.slow = Slow()
        await asyncio.sleep(100)
    """,
    "writes": """
        while True:
            log.write("line\\n")
            await asyncio.sleep(0.02)
    """,
    "fork": """
        child = os.fork()
        if not child:
            time.sleep(100)
        os.kill(child, signal.SIGTERM)
        await asyncio.sleep(0.3)
        print(os.waitpid(child, os.WNOHANG)[1], flush=True)
    """,
}
FRAME = """
import asyncio, atexit, os, signal, sys, threading, time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sdfeel.deploy.facts.logs import LogFile
from sdfeel.deploy.operate.ending import run_until_signal

async def program():
    print("up", flush=True)
    {body}

log = LogFile(Path(sys.argv[1]) if sys.argv[1] else None)
sys.exit(run_until_signal(program(), log, "a", float(sys.argv[2])))
"""


@contextmanager
def start(name: str, log: Path | str, seconds: float = 0.5) -> Iterator[subprocess.Popen[str]]:
    """A program that is up; a test that fails does not wait for its end."""
    body = PROGRAMS[name].strip().replace("\n    ", "\n")
    program = subprocess.Popen(
        [sys.executable, "-c", FRAME.format(body=body), str(log), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
    )
    with program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "up\n"
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", ["swallowed", "blocked", "tidies-for-ever"])
def test_a_program_that_does_not_end_is_ended(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    with start(name, tmp_path / "log") as program:
        program.send_signal(number)
        assert program.wait(20) == 130
    (line,) = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert (line["event"], line["node"]) == ("stop-forced", "a")
    assert line["reason"] == "not over after 0.5 s"
    assert any("<string>" in place for place in line["task"] + line["thread"]), "where it hangs"


@pytest.mark.parametrize("name", ["worker", "thread", "finaliser"])
def test_nobody_waits_for_what_outlives_the_program(tmp_path: Path, name: str) -> None:
    with start(name, tmp_path / "log", seconds=100.0) as program:
        program.terminate()
        assert program.wait(20) in (130, -signal.SIGALRM)
    assert not (tmp_path / "log").read_text()


def test_a_slow_end_of_the_interpreter_is_a_good_one(tmp_path: Path) -> None:
    """It frees what is left, for seconds where the machine is busy; a supervisor saw a failure."""
    with start("teardown", tmp_path / "log", seconds=100.0) as program:
        program.terminate()
        assert program.wait(20) == 130
    assert not (tmp_path / "log").read_text()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with start("swallowed", tmp_path / "log", seconds=100.0) as program:
        program.terminate()
        time.sleep(1.5)
        assert program.poll() is None
        program.terminate()
        assert program.wait(20) == 130
    assert "a second signal" in (tmp_path / "log").read_text()


def test_signals_that_come_together_are_one(tmp_path: Path) -> None:
    """`timeout` tells the process and its group; a terminal may, too."""
    with start("tidies", tmp_path / "log", seconds=100.0) as program:
        for _ in range(3):
            program.terminate()
            time.sleep(0.05)
        assert program.communicate(timeout=20)[0] == "tidy\n"
        assert program.returncode == 130
    assert not (tmp_path / "log").read_text()


def test_signals_of_a_forked_process_are_its_own(tmp_path: Path) -> None:
    with start("fork", tmp_path / "log") as program:
        assert program.communicate(timeout=20)[0] == f"{signal.SIGTERM.value}\n"
        assert program.returncode == 0


def test_a_hangup_opens_the_log_anew(tmp_path: Path) -> None:
    log, old = tmp_path / "log", tmp_path / "log.1"
    with start("writes", log) as program:
        log.rename(old)
        program.send_signal(signal.SIGHUP)
        while not log.exists() or not log.read_text():
            assert program.poll() is None
            time.sleep(0.01)
        assert set(old.read_text().split()) == {"line"}
        program.terminate()
        assert program.wait(20) == 130


def test_without_a_log_file_a_closed_terminal_stops_it() -> None:
    with start("tidies", "", seconds=100.0) as program:
        program.send_signal(signal.SIGHUP)
        assert program.communicate(timeout=20)[0] == "tidy\n"
        assert program.returncode == 130
