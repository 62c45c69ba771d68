"""What a client runs on its own machine, found by import path; nothing here needs PyTorch."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.node.client import Trainer
from sdfeel.errors import InputError

__all__ = ["imported", "make_trainer"]


def imported(field: str, path: str, beside: Path | None = None) -> Callable[..., Any]:
    """The function that `package.module:function` names.

    beside  the deployment file's folder, where modules are looked for first
    """
    module, _, name = path.partition(":")
    if beside is not None and str(beside.resolve()) not in sys.path:
        sys.path.insert(0, str(beside.resolve()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        places = "the deployment file's folder, PYTHONPATH and what is installed"
        raise InputError(
            field,
            path,
            f"an import path such as `package.module:function`, looked for in {places} ({problem})",
        ) from None
    if not callable(found):
        raise InputError(field, path, "must be a function")
    return cast("Callable[..., Any]", found)


def make_trainer(deployment: Deployment, client: str) -> Trainer:
    """The trainer that `local.trainer` names."""
    make = imported("local.trainer", deployment.local.trainer, deployment.folder)
    return cast("Trainer", make(deployment, client))
