"""What a client runs on its own machine, found by import path; nothing here needs PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.node.client import Trainer
from sdfeel.errors import InputError

__all__ = ["imported", "make_trainer"]


def imported(field: str, path: str) -> Callable[..., Any]:
    """The function that `package.module:function` names."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise InputError(
            field, path, f"an import path such as `package.module:function` ({problem})"
        ) from None
    if not callable(found):
        raise InputError(field, path, "must be a function")
    return cast("Callable[..., Any]", found)


def make_trainer(deployment: Deployment, client: str) -> Trainer:
    """The trainer that `local.trainer` names."""
    make = imported("local.trainer", deployment.local.trainer)
    return cast("Trainer", make(deployment, client))
