"""What an app finds in contexts and messages: run_config, node_config and train_config, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord
from flwr.common.config import parse_config_args

from sdfeel.errors import InputError

__all__ = ["checked_config", "node_configs", "plain_config", "read_config"]


def checked_config(field: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Check what Flower allows in the config of a message."""
    try:
        return dict(ConfigRecord(dict(config)))
    except TypeError as problem:
        reason = str(problem).splitlines()[0]
        raise InputError(field, dict(config), f"no config of Flower's: {reason}") from None


def plain_config(field: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Check what Flower allows in a config, with tables in it as dotted names.

    >>> plain_config("run_config", {"params": {"eta": 0.1}, "local-epochs": 1})
    {'params.eta': 0.1, 'local-epochs': 1}
    """
    plain: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            inner = plain_config(f"{field}[{key!r}]", value)
            plain |= {f"{key}.{name}": each for name, each in inner.items()}
        elif isinstance(value, bool | int | float | str):
            plain[key] = value
        else:
            raise InputError(f"{field}[{key!r}]", value, "a number, a word, or true or false")
    return plain


def node_configs(given: Mapping[str, Any] | Sequence[Any], clients: int) -> list[dict[str, Any]]:
    """Return the node_config of each client.

    Args:
        given: a table whose values are for all clients, or lists with one for each; or a list of
            tables.

    >>> node_configs({"dataset-path": ["a", "b"], "fast": True}, 2)
    [{'dataset-path': 'a', 'fast': True}, {'dataset-path': 'b', 'fast': True}]
    """
    if not isinstance(given, Mapping):
        tables = list(given)
        if len(tables) != clients or not all(isinstance(table, Mapping) for table in tables):
            raise InputError("node_config", given, f"a table for each of {clients} clients")
        return [plain_config(f"node_config[{n}]", table) for n, table in enumerate(tables)]
    for key, value in given.items():
        if isinstance(value, list | tuple) and len(value) != clients:
            remedy = f"one value for all, or a list with one for each of {clients} clients"
            raise InputError(f"node_config[{key!r}]", value, remedy)
    return [
        plain_config(
            "node_config",
            {k: v[n] if isinstance(v, list | tuple) else v for k, v in given.items()},
        )
        for n in range(clients)
    ]


def read_config(field: str, text: str) -> dict[str, Any]:
    """Read a config as `flower-supernode --node-config` has it.

    >>> read_config("--node-config", 'dataset-path="data/1" fast=true')
    {'dataset-path': 'data/1', 'fast': True}
    """
    try:
        config: dict[str, Any] = parse_config_args([text])
    except Exception:  # Flower's parser has errors of several kinds
        config = {}
    if not config:
        raise InputError(field, text, 'pairs such as dataset-path="data/1" fast=true')
    return config
