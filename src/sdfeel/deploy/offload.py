"""Long work beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ["offload"]

Result = TypeVar("Result")


async def offload(large: bool, work: Callable[[], Result]) -> Result:
    """Large work goes to a thread, so that pings and timers are answered meanwhile."""
    return await asyncio.to_thread(work) if large else work()
