"""TOML from outside, in files and on the command line: whatever is wrong is one named error."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError

MAX_BYTES = 8 * 2**20
# Far more than any table of ours has, and far less than what ends in a RecursionError later on.
MAX_DEPTH = 32
# TOML promises whole numbers of 64 bits; Python would read any number of digits.
LARGEST = 2**63
LEVELS = 32  # of tables in each other, as a dotted key names them


def read_toml(source: Path | str, field: str, most: int = MAX_BYTES) -> dict[str, Any]:
    """The table in a file (a Path) or in a text (a str); InputError names `field` if it is none.

    most  bytes that a file may have
    """
    shown = str(source) if isinstance(source, Path) else source
    text = _read(source, field, most) if isinstance(source, Path) else source
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError, MemoryError) as problem:  # also a number of 5,000 digits
        reason = str(problem) or type(problem).__name__
        raise InputError(field, shown, f"not TOML: {reason}") from None
    _check(table, field, shown)
    return table


def refuse_special(path: Path, field: str) -> None:
    """Raise InputError for a pipe or a device: to open one may take for ever."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError(field, str(path), "is no regular file")


def _read(path: Path, field: str, most: int) -> str:
    try:
        refuse_special(path, field)
        with path.open("rb") as file:
            content = file.read(most + 1)
        if len(content) <= most:
            return content.decode("utf-8")
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(field, str(path), "there is no such file") from None
    except (OSError, ValueError) as problem:  # a ValueError: no UTF-8, or a NUL in the path
        raise InputError(field, str(path), f"cannot be read: {problem}") from None
    raise InputError(field, str(path), f"at most {most} bytes")


def _check(table: dict[str, Any], field: str, shown: str) -> None:
    """Refuses what no 64-bit program could use: deep nesting and very large whole numbers."""
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if _is_usable(inner, field, shown)
        ]
        if not level:
            return
    raise InputError(field, shown, f"tables and lists in each other, at most {MAX_DEPTH} deep")


def _is_usable(value: Any, field: str, shown: str) -> bool:
    """Check a value, and return whether it has others inside."""
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise InputError(
            field, shown, f"a whole number in it has {value.bit_length()} bits, not 64"
        )
    return isinstance(value, dict | list)


def merge(table: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Change a table, table by table; keys of `change` may be dotted.

    >>> merge({"schedule": {"tau1": 1, "tau2": 2}}, {"schedule.tau1": 5})
    {'schedule': {'tau1': 5, 'tau2': 2}}
    """
    result = {key: dict(v) if isinstance(v, Mapping) else v for key, v in table.items()}
    for key, value in change.items():
        head, _, rest = key.partition(".")
        if rest:
            value = {rest: value}  # noqa: PLW2901 - one level of the dotted key is taken off
        if isinstance(value, Mapping):
            inner = result.get(head, {})
            if not isinstance(inner, Mapping):
                raise InputError(key, value, f"{head} is a value, not a table")
            result[head] = merge(inner, value)
        else:
            result[head] = value
    return result


def with_settings(table: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Change a table by `key=value` settings of the command line: TOML, or plain words."""
    result = dict(table)
    for setting in settings:
        key, sign, text = setting.partition("=")
        is_key = key.strip() and key.isprintable() and key.count(".") < LEVELS
        if not sign or not is_key:
            raise InputError("--set", setting, "key=value, such as schedule.tau1=3")
        try:
            value = read_toml(f"value = {text}", "--set")["value"]
        except InputError:
            value = _number_or_word(text)
        result = merge(result, {key.strip(): value})
    return result


def _number_or_word(text: str) -> float | str:
    """Read what is not TOML: `.1` is a number all the same."""
    try:
        return float(text)
    except ValueError:
        return text
