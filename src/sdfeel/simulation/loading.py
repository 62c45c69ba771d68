"""`sdfeel.load`: a result from the folder that keeps it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from sdfeel.data import DATASETS
from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError
from sdfeel.models import MODELS, build
from sdfeel.records.reading import RunRecord, read_run
from sdfeel.simulation.result import KEPT, Result


def load(folder: str | Path, model: nn.Module | None = None) -> Result:
    """The result of a run that ended, from the folder of `out=`, `--out` or `Result.save`.

    model  the network that was trained, with any weights: a folder holds weights, not code. A run
           of `sdfeel run` with a model of ours needs none
    """
    record = read_run(folder)
    if record.summary is None or not set(KEPT) <= set(record.summary):
        raise InputError(
            "folder", str(folder), "the run has not ended, or an older version kept it"
        )
    module = _module(record, model)
    weights = _tensors(record.path / "model.safetensors")
    try:
        module.load_state_dict(weights)
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())[:300]
        raise InputError(
            "model", type(module).__name__, f"is not what was trained: {reason}"
        ) from None
    servers = _tensors(record.path / "servers.safetensors").get("servers")
    if servers is None or servers.shape[-1] != ParameterLayout.of(module).size:
        raise InputError("folder", str(folder), "its servers.safetensors does not fit the model")
    summary = {"phases": {}, **record.summary}
    same = ("scheme", "engine", "iterations", "seconds", "interrupted", "phases", *KEPT)
    return Result(
        model=module.eval(),
        history=record.metrics,
        servers=servers,
        config=record.config,
        network=record.network,
        environment=record.environment,
        folder=record.path,
        **{name: summary[name] for name in same},
    )


def _module(record: RunRecord, given: Any) -> nn.Module:
    if isinstance(given, nn.Module):
        return copy.deepcopy(given)
    if given is not None:
        raise InputError("model", given, "a torch.nn.Module (an object, not its class)")
    names = [record.config.get(key) for key in ("model", "data")]
    model, data = (named.get("name") if isinstance(named, dict) else None for named in names)
    if model in MODELS and data in DATASETS:
        return build(model, DATASETS[data].shape, DATASETS[data].classes, 0)
    raise InputError("model", None, "is needed: the network that was trained, with any weights")


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as problem:
        raise InputError("folder", str(path), f"cannot be read: {problem}") from None
