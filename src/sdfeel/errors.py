"""The errors a user can act on. Anything else that escapes is a bug and shows a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SdfeelError(Exception):
    """Base of every error that sdfeel raises on purpose; its text is meant for people."""


class InputError(SdfeelError, ValueError):
    """A user's mistake: names the field, the value given and what would be right.

    The command line ends with status 2 on it.
    """

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field = field
        self.value = value
        self.remedy = remedy
        shown = repr(value)
        if len(shown) > 200:
            shown = shown[:197] + "..."
        super().__init__(f"{field} = {shown}: {remedy}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str]]:
        return type(self), (self.field, self.value, self.remedy)


class RunError(SdfeelError, RuntimeError):
    """A run that could not go on (a loss that became NaN, a source out of reach): status 1."""


class DivergedError(RunError):
    """Models or losses of a run are no longer finite numbers."""


def closest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'? ` if one of `known` is near, and the list of what is known."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}known: {', '.join(names)}"
