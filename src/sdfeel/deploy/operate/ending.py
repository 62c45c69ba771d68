"""The end of a program that was told to stop: by itself if it can, by force if it must.

A stop is a cancellation of the program's task. Whatever swallows it, blocks the event loop, or
keeps a thread at work (Python waits for threads before it ends) would keep the process for ever.
So a thread of its own waits for signals: it needs neither the event loop nor the main thread.
Nothing is lost by force: what a node has acknowledged is on its disk, as after kill -9.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from sdfeel.deploy.facts.facts import StopForced
from sdfeel.deploy.facts.logs import LogFile, as_text

__all__ = ["INTERRUPTED", "STOP_SECONDS", "run_until_signal"]

INTERRUPTED = 130  # exit status of a program that was stopped before its end
STOP_SECONDS = 10.0  # for a program to end by itself
THREAD_SECONDS = 2.0  # then, for its threads: their results are of no use any more
# A supervisor may tell the process and then its group: both are one wish.
SAME_SECONDS = 1.0
STOPS = (signal.SIGINT, signal.SIGTERM)
OVER = 0  # no signal has this number
PLACES = 12  # of a stack in the log


def run_until_signal(
    program: Coroutine[Any, Any, None],
    log: LogFile | None = None,
    node: str = "",
    seconds: float = STOP_SECONDS,
) -> int:
    """Run a program to its end, or until SIGINT or SIGTERM.

    A second signal, or `seconds` without an end, ends the process at once (`stop-forced` in the
    log). SIGHUP opens a log file anew; without one it stops the program, as a closed terminal does.

    Args:
        program: What to run, in an event loop of its own.
        log: The node's log.
        node: Its name, for the log.
        seconds: Given to the program after the first signal.

    Returns:
        The exit status: 0, or 130 if the program was stopped before its end.
    """

    async def main() -> int:
        task = asyncio.ensure_future(program)
        watch.begin(asyncio.get_running_loop(), task)
        try:
            await task
        except asyncio.CancelledError:
            return INTERRUPTED
        finally:
            watch.is_over()
        return 0

    watch = _Watch(log, node, seconds)
    with watch.signals():
        watch.status = asyncio.run(main())
    return watch.status


class _Watch:
    """Waits for signals in a thread; see above."""

    def __init__(self, log: LogFile | None, node: str, seconds: float) -> None:
        self._log, self._node, self._seconds = log, node, seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Future[None] | None = None
        self._stops = STOPS if log and log.path else (*STOPS, signal.SIGHUP)
        self._wishes, self._tell = os.pipe()
        self.status = INTERRUPTED

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        """Signals go to the thread, and to nobody else, while inside.

        The interpreter writes the number of every signal with a handler into the pipe, whatever
        the main thread does at that moment.
        """
        os.set_blocking(self._tell, False)
        is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
        numbers = [*STOPS, *([] if is_ignored else [signal.SIGHUP])]
        before = {number: signal.signal(number, lambda *_: None) for number in numbers}
        pipe = signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        threading.Thread(target=self._run, name="signals", daemon=True).start()
        _handled.extend(numbers)
        try:
            yield
        finally:
            _handled.clear()
            signal.set_wakeup_fd(pipe)
            for number, handler in before.items():
                signal.signal(number, handler)

    def begin(self, loop: asyncio.AbstractEventLoop, task: asyncio.Future[None]) -> None:
        """The program runs from now on."""
        self._loop, self._task = loop, task

    def is_over(self) -> None:
        """The program has ended; its threads may still be at work."""
        os.write(self._tell, bytes([OVER]))

    def _run(self) -> None:
        first, end, is_over = 0.0, math.inf, False
        while True:
            for number in self._read(end):
                now = time.monotonic()
                if number in self._stops and not first:
                    first = now
                    end = self._limit(THREAD_SECONDS if is_over else self._seconds)
                    self._later(self._cancel)
                elif number in self._stops and now - first > SAME_SECONDS:
                    self._limit(0.0)
                    self._end("a second signal", is_over)
                elif number == signal.SIGHUP:
                    self._later(self._reopen)
                elif number == OVER:
                    is_over = True
                    if first:  # else nobody is in a hurry
                        end = self._limit(THREAD_SECONDS)
            if time.monotonic() >= end:
                self._end(f"not over after {self._seconds:g} s", is_over)

    @staticmethod
    def _limit(seconds: float) -> float:
        """When we end the process; should this thread be held up too, by the interpreter or by
        the disk of the log, the kernel does a little later, with SIGALRM.
        """
        signal.setitimer(signal.ITIMER_REAL, seconds + SAME_SECONDS)
        return time.monotonic() + seconds

    def _read(self, end: float) -> bytes:
        """What the pipe has, or nothing once the time is over."""
        left = None if end == math.inf else max(0.0, end - time.monotonic())
        ready, _, _ = select.select([self._wishes], [], [], left)
        return os.read(self._wishes, 4096) if ready else b""

    def _later(self, call: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing to stop
            if self._loop is not None:
                self._loop.call_soon_threadsafe(call)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _reopen(self) -> None:
        if self._log is not None:
            self._log.reopen()

    def _end(self, reason: str, is_over: bool) -> NoReturn:
        """End the process. That threads outlive the program is no news; all else is."""
        if not is_over:
            with contextlib.suppress(OSError):
                self._say(reason)
        os._exit(self.status)

    def _say(self, reason: str) -> None:
        """What is in the way of an end: where the main thread and the program are."""
        main = sys._current_frames().get(threading.main_thread().ident or 0)
        tasks = self._task.get_stack() if isinstance(self._task, asyncio.Task) else []
        thread = _places([main] if main else [])
        fact = StopForced(reason=reason, thread=thread, task=_places(tasks))
        (self._log or LogFile()).write(as_text(self._node, fact))


def _places(frames: list[FrameType]) -> list[str]:
    lines = [line for frame in frames for line in traceback.extract_stack(frame)]
    return [f"{Path(line.filename).name}:{line.lineno}" for line in lines[-PLACES:]]


_handled: list[signal.Signals] = []  # by the program of this process


def _hold_signals() -> None:
    """Before a fork: a signal to the child waits until the child has left ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _handled)


def _release_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _handled)


def _leave_signals() -> None:
    """In the child: its signals would reach our pipe."""
    if _handled:
        signal.set_wakeup_fd(-1)
        for number in _handled:
            signal.signal(number, signal.SIG_DFL)
    _release_signals()


os.register_at_fork(
    before=_hold_signals, after_in_parent=_release_signals, after_in_child=_leave_signals
)


def _spare_teardown() -> None:
    """Threads and programs are over: what is left is the interpreter's own end.

    A busy machine may need seconds for that; the process ended well and must not be killed in it.
    """
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        signal.setitimer(signal.ITIMER_REAL, STOP_SECONDS)


atexit.register(_spare_teardown)  # before others do, so it is the last to be called
