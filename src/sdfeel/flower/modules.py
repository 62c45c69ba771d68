"""Where the arrays of a Flower app lie in the vector of a module; and a module for those that have
none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sdfeel.engines.parameters import ParameterLayout
from sdfeel.errors import InputError
from sdfeel.flower.arrays import ArrayLayout, Piece

__all__ = ["Holder", "layout_of", "module_of"]


class Holder(nn.Module):
    """Nothing but an app's arrays under their names: `state_dict()` gives them back."""

    def forward(self, *_: Any) -> Tensor:
        raise InputError(
            "model", "Holder", "it only holds arrays; load its state_dict() into your own model"
        )


def module_of(
    model: nn.Module | None, initial: Any
) -> tuple[nn.Module, list[tuple[str, np.dtype[Any]]]]:
    """Return the module that holds the first model, and names and dtypes of the app's arrays.

    initial  a state dict, a dict or a list of arrays; or None for what `model` holds
    """
    if isinstance(initial, nn.Module) and model is None:
        model, initial = initial, None
    if model is not None and not isinstance(model, nn.Module):
        raise InputError("model", model, "a torch.nn.Module (an object, not its class)")
    if initial is None:
        if model is None:
            raise InputError("initial", None, "is needed: Net().state_dict(), or a list of arrays")
        return model, _kinds(model.state_dict())
    arrays = _named(initial)
    if model is None:
        return _holder(arrays), _kinds(arrays)
    try:
        model.load_state_dict(arrays)
    except RuntimeError as problem:
        reason = " ".join(str(problem).split())
        raise InputError("initial", list(arrays)[:3], f"does not fit `model`: {reason}") from None
    return model, _kinds(arrays)


def layout_of(module: nn.Module, arrays: Sequence[tuple[str, np.dtype[Any]]]) -> ArrayLayout:
    """Return the places of arrays, which have the names of the module's state dict."""
    layout = ParameterLayout.of(module)
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    starts = np.concatenate([[0], np.cumsum(layout.sizes)])
    places = {id(tensors[name]): int(at) for name, at in zip(layout.names, starts, strict=False)}
    state = module.state_dict(keep_vars=True)
    pieces, seen = [], set()
    for name, kind in arrays:
        tensor = state[name]
        start = places.get(id(tensor))
        constant = b"" if start is not None else tensor.detach().cpu().numpy().tobytes()
        pieces.append(
            Piece(name, str(kind), tuple(tensor.shape), start, constant, twin=start in seen)
        )
        if start is not None:
            seen.add(start)
    return ArrayLayout(pieces, layout.size)


def _named(initial: Any) -> dict[str, Tensor]:
    """Return tensors by name; those of a list by number."""
    if isinstance(initial, Sequence) and not isinstance(initial, str):
        initial = {str(number): array for number, array in enumerate(initial)}
    if not isinstance(initial, Mapping) or not initial:
        shown = type(initial).__name__
        raise InputError("initial", shown, "a state dict, or a list of arrays, with one at least")
    arrays = {}
    for name, array in initial.items():
        try:
            arrays[str(name)] = torch.as_tensor(np.asarray(array)).clone()
        except (TypeError, ValueError, RuntimeError):
            shown = type(array).__name__
            raise InputError(f"initial[{name!r}]", shown, "must be an array or tensor") from None
        if not bool(arrays[str(name)].isfinite().all()):
            raise InputError(f"initial[{name!r}]", array, "must be finite")
    if not any(tensor.is_floating_point() for tensor in arrays.values()):
        raise InputError("initial", list(arrays)[:3], "has no array of real numbers to train")
    return arrays


def _kinds(arrays: Mapping[str, Tensor]) -> list[tuple[str, np.dtype[Any]]]:
    return [(name, tensor.detach().cpu().numpy().dtype) for name, tensor in arrays.items()]


def _holder(arrays: Mapping[str, Tensor]) -> Holder:
    """Real arrays are parameters, all of one dtype; others are buffers.

    Written to the module's own tables: a name may be any, also one that a module has itself.
    """
    wide = any(tensor.dtype == torch.float64 for tensor in arrays.values())
    root = Holder()
    for name, tensor in arrays.items():
        *path, leaf = name.split(".")
        place: nn.Module = root
        for part in path:
            place = place._modules.setdefault(part, Holder())  # type: ignore[assignment]
        if tensor.is_floating_point():
            kind = torch.float64 if wide else torch.float32
            place._parameters[leaf] = nn.Parameter(tensor.to(kind))
        else:
            place._buffers[leaf] = tensor
    return root
