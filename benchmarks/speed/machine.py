"""The machine that numbers were measured on, in words."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sdfeel.engines.fast.compiler import find_compiler
from sdfeel.engines.fast.errors import Unsupported
from speed.measuring import cores

__all__ = ["describe_machine", "load"]


def load() -> float:
    """How many processes wanted a core in the last minute."""
    return os.getloadavg()[0]


def describe_machine() -> dict[str, Any]:
    """Processor, memory, versions, and how busy the machine is already."""
    fields = _processor()
    flags = fields.get("flags", "").split()
    vectors = [name for name in ("avx2", "fma", "avx512f") if name in flags]
    return {
        "processor": fields.get("model name", platform.processor() or platform.machine()),
        "cores": cores(),
        "vector units": ", ".join(vectors) or "unknown",
        "caches": _caches(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "sdfeel": importlib.metadata.version("sdfeel"),
        "compiler": _compiler(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "load_before": round(load(), 2),
    }


def _processor() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _caches() -> str:
    """Such as `L1 32K, L2 512K, L3 32768K`: data caches, as the first core sees them."""
    found = []
    for place in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = (
                (place / name).read_text().strip() for name in ("type", "level", "size")
            )
        except OSError:
            continue
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return ", ".join(found) or "unknown"


def _compiler() -> str:
    try:
        command = find_compiler()
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (Unsupported, OSError, subprocess.SubprocessError) as reason:
        return f"none ({reason})"
    return (done.stdout.splitlines() or ["unknown"])[0]
