"""Checkpoints: one safetensors file, replaced as a whole, checked before it is used."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from sdfeel.errors import InputError
from sdfeel.files import write_atomically
from sdfeel.simulation.engines.engine import EngineState
from sdfeel.simulation.loop import Snapshot

__all__ = ["read_checkpoint", "save_models", "write_checkpoint"]

FORMAT = "sdfeel-checkpoint-1"
MAX_BYTES = 64 * 2**30


def write_checkpoint(path: Path, snapshot: Snapshot, run: str, engine: str) -> None:
    """Write a snapshot of the run with this fingerprint, atomically."""
    tensors = {
        "servers": snapshot.state.servers.cpu().contiguous(),
        "clock_at": torch.from_numpy(snapshot.clock_at),
    }
    if snapshot.state.clients is not None:
        tensors["clients"] = snapshot.state.clients.cpu().contiguous()
    about = {
        "format": FORMAT,
        "run": run,
        "engine": engine,
        "iteration": snapshot.iteration,
        "clock_steps": snapshot.clock_steps,
        "batch_loss": snapshot.batch_loss,
        "rows": snapshot.rows,
    }
    text = json.dumps(about)
    metadata = {"sdfeel": text, "sha256": _digest(text, tensors)}
    write_atomically(path, save(tensors, metadata))


def read_checkpoint(path: Path, run: str | None) -> tuple[Snapshot, str]:
    """The snapshot in a file and the engine that wrote it; refuses what is not whole or not ours.

    `run` is the fingerprint that it must carry; None takes any.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError("checkpoint", str(path), f"larger than {MAX_BYTES} bytes")
        content = path.read_bytes()
    except OSError as problem:
        raise InputError("checkpoint", str(path), f"cannot be read: {problem.strerror}") from None
    try:
        tensors = load(content)
        metadata = _metadata(content)
        about = json.loads(metadata["sdfeel"])
        if about["format"] != FORMAT or metadata["sha256"] != _digest(metadata["sdfeel"], tensors):
            raise ValueError("its checksum does not fit")
        found = str(about["run"])
        snapshot = Snapshot(
            iteration=int(about["iteration"]),
            clock_at=tensors["clock_at"].double().numpy(),
            clock_steps=int(about["clock_steps"]),
            state=EngineState(tensors["servers"], tensors.get("clients")),
            rows=[{str(k): float(v) for k, v in row.items()} for row in about["rows"]],
            batch_loss=float(about["batch_loss"]),
        )
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise InputError(
            "checkpoint",
            str(path),
            f"truncated, damaged or not a checkpoint of sdfeel ({problem}); start the run anew in "
            "another folder, or restore the file",
        ) from None
    if run is not None and found != run:
        raise InputError(
            "checkpoint",
            str(path),
            "belongs to another run: data, model, network, schedule, seed, lr and batch size must "
            "be those it was started with",
        )
    return snapshot, str(about["engine"])


def save_models(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Models as safetensors, atomically."""
    write_atomically(path, save({name: t.cpu().contiguous() for name, t in tensors.items()}))


def _digest(text: str, tensors: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    found = header["__metadata__"]
    return {"sdfeel": str(found["sdfeel"]), "sha256": str(found["sha256"])}
