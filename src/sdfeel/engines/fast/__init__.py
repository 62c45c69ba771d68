"""The fast exact engine for small networks on the processor."""

from __future__ import annotations

from .compiled import CompiledModel, compile_model, loss_name
from .errors import Unsupported

__all__ = ["CompiledModel", "Unsupported", "compile_model", "loss_name"]
