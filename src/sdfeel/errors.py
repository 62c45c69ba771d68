"""The errors a user can act on. Anything else that escapes is a bug and shows a traceback."""

from __future__ import annotations

import difflib
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# A list of more names than LISTED is a wall: a mistake then names a FEW.
LISTED, FEW = 10, 6

# Where code lies that is not the user's.
NOT_THE_USERS = (
    *{sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")},
    "<frozen",
)
NOT_THE_USERS += (str(Path(__file__).parent),)


class SdfeelError(Exception):
    """Base of every error that sdfeel raises on purpose; its text is meant for people.

    >>> issubclass(sdfeel.InputError, sdfeel.SdfeelError)
    True
    """


class InputError(SdfeelError, ValueError):
    """A user's mistake: names the field, the value given and what would be right.

    The command line ends with status 2 on it.

    >>> try:
    ...     sdfeel.Schedule(tau1=0)
    ... except sdfeel.InputError as mistake:
    ...     print(mistake.field, mistake.value)
    schedule.tau1 0
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        shown = repr(value)
        if len(shown) > 200:
            shown = shown[:197] + "..."
        super().__init__(f"{field} = {shown}: {remedy}")

    def at(self, where: str) -> InputError:
        """Return the same mistake with `where` before its field."""
        return type(self)(where + self.field, self.value, self.remedy)

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.remedy)


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put `where` before the field of a mistake that is found inside.

    >>> from sdfeel.errors import InputError, located
    >>> with located("graphs[2]: "):
    ...     raise InputError("servers", 0, "at least 1")
    Traceback (most recent call last):
    sdfeel.errors.InputError: graphs[2]: servers = 0: at least 1
    """
    try:
        yield
    except InputError as mistake:
        raise mistake.at(where) from None


class RunError(SdfeelError, RuntimeError):
    """A run that could not go on (a loss that became NaN, a source out of reach): status 1.

    >>> issubclass(sdfeel.RunError, sdfeel.SdfeelError)
    True
    """


class DivergedError(RunError):
    """Models or losses of a run are no longer finite numbers."""


def reason(problem: BaseException) -> str:
    """The first line of an error, after the line of the user's own code that it comes from."""
    text = (str(problem).splitlines() or [""])[0]
    if isinstance(problem, SyntaxError):
        file, number, function, text = problem.filename, problem.lineno, "", problem.msg
    else:
        calls = traceback.extract_tb(problem.__traceback__)
        calls_of_user = [call for call in calls if not call.filename.startswith(NOT_THE_USERS)]
        if not calls_of_user:
            return text or type(problem).__name__
        file, number, function = (
            calls_of_user[-1].filename,
            calls_of_user[-1].lineno,
            f", in {calls_of_user[-1].name}",
        )
    path = Path(file or "?")
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{path}, line {number}{function}: {type(problem).__name__}{text and f': {text}'}"


_SAID: ContextVar[set[str] | None] = ContextVar("_SAID", default=None)


@contextmanager
def warned_once() -> Iterator[None]:
    """Give each warning once, however many runs inside have cause for it."""
    token = _SAID.set(set())
    try:
        yield
    finally:
        _SAID.reset(token)


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and point to the line of the user's own that led here."""
    given = _SAID.get()
    if given is not None:
        if text in given:
            return
        given.add(text)
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(NOT_THE_USERS):
        frame = frame.f_back
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
    warnings.warn_explicit(text, category, file, frame.f_lineno, module, registry)


def closest(name: str, known: Iterable[str], place: str = "") -> str:
    """`did you mean 'x'? ` if one of `known` is near, and what is known.

    Of a long list the names that are nearest; `place` says where all of them can be read.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    if len(names) <= LISTED:
        return f"{guess}known: {', '.join(names)}"
    some = sorted(difflib.get_close_matches(name, names, n=FEW, cutoff=0))
    rest = f"and {len(names) - len(some)} more"
    return f"{guess}known: {', '.join(some)} {rest}{place and f', see {place}'}"
