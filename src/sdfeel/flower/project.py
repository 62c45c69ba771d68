"""A Flower project: what its `pyproject.toml` says, as the table of a run file.

[tool.flwr.app.components]     clientapp and serverapp
[tool.flwr.app.config]         the run_config
[tool.flwr.federations]        options.num-supernodes of the default one: how many clients
[tool.sdfeel]                  anything that a run file has, such as network.servers
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sdfeel.errors import InputError
from sdfeel.toml import read_toml

__all__ = ["FILE", "project_table"]

FILE = "pyproject.toml"
CLIENTS = 10  # of a project that does not say how many, as in Flower's own simulations
MAX_BYTES = 2**20


def project_table(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a project's folder or file.

    Returns:
        What Flower's tables mean for a run, and the table `[tool.sdfeel]` that changes it.

    Raises:
        InputError: it is no Flower project.
    """
    file = path / FILE if path.is_dir() else path
    if not file.exists():
        raise InputError("config", str(path), f"a folder without {FILE} is no Flower project")
    tool = _table(read_toml(file, FILE, MAX_BYTES), "tool")
    app = _table(_table(tool, "flwr"), "app")
    components = _table(app, "components")
    for name in ("clientapp", "serverapp"):
        if not isinstance(components.get(name), str):
            raise InputError(
                f"{FILE}: tool.flwr.app.components.{name}",
                components.get(name),
                "is needed: an import path such as my_app.client_app:app",
            )
    clients = _clients(_table(_table(tool, "flwr"), "federations"))
    servers = next(n for n in range(math.isqrt(clients), 0, -1) if clients % n == 0)
    table = {
        "trainer": f"flower:{components['clientapp']}",
        "flower": {
            "server": components["serverapp"],
            "folder": str(file.parent.resolve()),
            "run_config": _table(app, "config"),
        },
        "network": {"servers": servers, "clients_per_server": clients // servers},
    }
    return table, _table(tool, "sdfeel")


def _table(outer: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = outer.get(name, {})
    if not isinstance(inner, dict):
        raise InputError(f"{FILE}: {name}", inner, "a table")
    return inner


def _clients(federations: Mapping[str, Any]) -> int:
    """Return num-supernodes of the federation that is the default; it may not be there."""
    chosen = federations.get(str(federations.get("default")), {})
    options = chosen.get("options", {}) if isinstance(chosen, dict) else {}
    count = options.get("num-supernodes", CLIENTS) if isinstance(options, dict) else CLIENTS
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"{FILE}: num-supernodes", count, "a whole number, at least 1")
    return count
