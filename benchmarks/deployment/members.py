"""A deployment on this machine, written from a few numbers: its file, keys and first model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from processes import free_ports
from sdfeel.deploy.config import Deployment, load_deployment
from sdfeel.deploy.model.store import write_safetensors
from sdfeel.deploy.model.vectors import as_vector
from sdfeel.deploy.trust.provision import provision

__all__ = ["as_toml", "members", "write_deployment"]


def members(sizes: Sequence[int], fallback: bool = False) -> dict[str, Any]:
    """Return the tables of edges a, b, ... with so many clients each: c0, c1, ...

    Args:
        sizes: clients of each edge.
        fallback: whether a client that has lost its edge goes to any other.
    """
    names = [chr(ord("a") + number) for number in range(len(sizes))]
    homes = [name for name, size in zip(names, sizes, strict=True) for _ in range(size)]
    return {
        "edges": [
            {"name": name, "address": f"127.0.0.1:{port}"}
            for name, port in zip(names, free_ports(len(names)), strict=True)
        ],
        "clients": [
            {
                "name": f"c{number}",
                "edge": home,
                "samples": 10 + 7 * number,
                "fallbacks": [name for name in names if name != home] if fallback else [],
            }
            for number, home in enumerate(homes)
        ],
    }


def write_deployment(
    folder: Path, table: dict[str, Any], trainer: Path, first: np.ndarray
) -> tuple[Path, Deployment]:
    """Write the deployment of `table` into a folder, with certificates and the first model.

    Args:
        trainer: a file with a function `trainer(deployment, client)`, which all clients run.
        first: the values of the first model.

    Returns:
        The deployment file, and what it says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(trainer, folder)
    local = {"trainer": f"{trainer.stem}:trainer", **table.get("local", {})}
    file = folder / "deployment.toml"
    file.write_text(as_toml({**table, "local": local}), encoding="utf-8")
    write_safetensors(folder / "initial.safetensors", as_vector(first), {})
    deployment = load_deployment(file)
    provision(deployment)
    return file, deployment


def as_toml(table: dict[str, Any], prefix: str = "") -> str:
    """Return a table as TOML: enough of it for a deployment file."""
    lines, after = [], []
    for key, value in table.items():
        if isinstance(value, dict):
            after.append(f"[{prefix}{key}]\n" + as_toml(value, f"{prefix}{key}."))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            after += [f"[[{prefix}{key}]]\n" + as_toml(row, f"{prefix}{key}.") for row in value]
        elif value is not None:
            lines.append(f"{key} = {json.dumps(value)}")
    return "\n".join([*lines, *after]) + "\n"
