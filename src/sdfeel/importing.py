"""What a user names by `package.module:function`: found on the path, or beside them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sdfeel.errors import InputError

__all__ = ["imported"]


def imported(field: str, path: str) -> Callable[..., Any]:
    """The function at an import path; a module beside the caller is found as `python -m` does."""
    module, _, name = path.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InputError(
            field,
            path,
            f"cannot be imported: {problem}; an import path such as `package.module:function`, "
            f"looked for in {Path.cwd()} and on Python's path",
        ) from None
    if not callable(found):
        raise InputError(field, path, "must be a function")
    return cast("Callable[..., Any]", found)
