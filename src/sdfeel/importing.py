"""What a user names by `package.module:function`: found on the path, or beside them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sdfeel.errors import InputError, reason


def imported(field: str, path: str, beside: Path | None = None) -> Callable[..., Any]:
    """The function at an import path; a module beside the caller is found as `python -m` does.

    beside  the folder of the file that names it, where modules are looked for first
    """
    module, _, name = path.partition(":")
    if module.startswith("."):
        remedy = (
            "must begin with a module's name, as `package.module:function` does, not with a dot"
        )
        raise InputError(field, path, remedy)
    folder = str((beside or Path.cwd()).resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as problem:  # anything that a file of the user's may raise
        remedy = f"cannot be imported: {reason(problem)}"
        if module.endswith(".py"):
            remedy = f"names a file; its module's name is wanted: {module[:-3]}:{name}"
        elif isinstance(problem, ImportError | AttributeError | ValueError):
            remedy += (
                "; an import path such as `package.module:function`, looked for in "
                f"{folder}, PYTHONPATH and what is installed"
            )
        raise InputError(field, path, remedy) from None
    if not callable(function):
        raise InputError(field, path, "must be a function")
    return cast("Callable[..., Any]", function)
