"""Names of parameters, where a module is wrapped."""

from __future__ import annotations

import torch
from torch import nn

from sdfeel.engines.parameters import ParameterLayout


def test_a_compiled_module_comes_back_under_its_own_names() -> None:
    """Whole or in parts, so that the user's own model can load it."""
    inner = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    parts = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    parts[1] = torch.compile(parts[1], backend="eager")
    for model in (torch.compile(inner, backend="eager"), parts):
        assert any("_orig_mod" in name for name in model.state_dict())
        layout = ParameterLayout.of(model)
        vector = torch.arange(layout.size, dtype=torch.float32)
        state = layout.module(model, vector).state_dict()
        assert list(state) == ["0.weight", "0.bias", "1.weight", "1.bias"]
        assert torch.equal(torch.cat([value.flatten() for value in state.values()]), vector)
        assert any("_orig_mod" in name for name in model.state_dict()), "the user's is untouched"
