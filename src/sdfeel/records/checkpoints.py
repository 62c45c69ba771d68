"""Checkpoints: one safetensors file, replaced as a whole, checked before it is used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from sdfeel.errors import InputError
from sdfeel.files import write_atomically

FORMAT = "sdfeel-checkpoint-3"
MAX_BYTES = 64 * 2**30
MOST_CHANGES = 5

Row = dict[str, float]


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on, bit for bit.

    events       how many of the stream are done; seconds: what the simulated clock shows
    tensors      named rows: what they mean is their owner's business
    rows         the metrics so far
    batch_loss   sum of the mean batch losses of batch_count local steps since the last of them
    idle_share   the share of time that servers have waited for other clusters
    """

    iteration: int
    events: int
    seconds: float
    tensors: dict[str, torch.Tensor]
    rows: list[Row] = field(default_factory=list)
    batch_loss: float = 0.0
    batch_count: int = 0
    idle_share: float = 0.0


# Numbers of a checkpoint, beside its tensors and rows.
COUNTS, NUMBERS = ("iteration", "events", "batch_count"), ("seconds", "batch_loss", "idle_share")


def write_checkpoint(path: Path, checkpoint: Checkpoint, run: str, engine: str) -> None:
    """Write a checkpoint of the run with this fingerprint, atomically."""
    tensors = {name: t.cpu().contiguous() for name, t in checkpoint.tensors.items()}
    about = {"format": FORMAT, "run": run, "engine": engine, "rows": checkpoint.rows}
    about |= {name: getattr(checkpoint, name) for name in (*COUNTS, *NUMBERS)}
    text = json.dumps(about)
    metadata = {"sdfeel": text, "sha256": _digest(text, tensors)}
    write_atomically(path, save(tensors, metadata))


def read_checkpoint(
    path: Path, run: str | None, changes: Sequence[str] = ()
) -> tuple[Checkpoint, str]:
    """The checkpoint in a file and the engine that wrote it; refuses what is not whole or not ours.

    Args:
        path: the file.
        run: the fingerprint that it must carry; None takes any.
        changes: what may be why it carries another one.
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
        if metadata["sha256"] != _digest(metadata["sdfeel"], tensors):
            raise ValueError("its checksum does not fit")
        if about["format"] != FORMAT:
            raise ValueError(
                f"it is {about['format']!r}, of another version: this one reads {FORMAT}"
            )
        fingerprint, engine = str(about["run"]), str(about["engine"])
        checkpoint = Checkpoint(
            tensors=tensors,
            rows=[{str(k): float(v) for k, v in row.items()} for row in about["rows"]],
            **{name: int(about[name]) for name in COUNTS},
            **{name: float(about[name]) for name in NUMBERS},  # type: ignore[arg-type]
        )
    except (
        SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError,
        RecursionError,
    ) as problem:  # fmt: skip
        remedy = (
            f"truncated, damaged or not a checkpoint of sdfeel ({problem}); start the run anew in "
            "another folder, or restore the file"
        )
        raise InputError("checkpoint", str(path), remedy) from None
    if run is not None and fingerprint != run:
        reason = (
            "its settings are the same, so data, functions of yours or the model's first weights "
            "differ; torch.manual_seed(0) before the model is made gives the same weights again"
        )
        if changes:
            few = [*changes[:MOST_CHANGES], *(["..."] if len(changes) > MOST_CHANGES else [])]
            reason = f"{'; '.join(few)}. Take what it was started with, or another folder"
        remedy = f"belongs to another run: {reason}"
        raise InputError("checkpoint", str(path), remedy)
    return checkpoint, engine


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
    metadata = header["__metadata__"]
    return {"sdfeel": str(metadata["sdfeel"]), "sha256": str(metadata["sha256"])}
