"""A compiled network that is wrong is found out before it is used, and stays refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fast_networks import paper_cnn
from torch import nn

from sdfeel.engines.fast import Rule, Unsupported, compile_model, compiled
from sdfeel.engines.fast.proof import batches_to_check

NETWORK = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 5))
SHAPE = (1, 8, 8)

# Each as a compiler could get it wrong: a lane lost, a sum that is wrong only for long lists, a
# batch that is wrong only behind a block, an update that a step forgets, a term of the rule.
MISTAKES = {
    "a lane": ("v += SWAPPED(v, 1);", ";"),
    "long lists": ("return lanes_sum(a + b) + rest;", "return lanes_sum(a) + rest;"),
    "a second block": ("apply_gradient(STATE, everything(work), work->gradient, step);", ";"),
    "not a number": (
        "pack(work->gradient, out",
        "work->gradient[0] = NAN; pack(work->gradient, out",
    ),
    "the next step": ("refresh(work);\n    return total", "return total"),
    "nesterov": ("s.lag * load(p.v + i)", "0 * load(p.v + i)"),
    "a rule's last half": ("s.lead * load(p.v + i)", "0 * load(p.v + i)"),
    "shift": ("flat[i] -= shift[i];", ";"),
    "what is common": ("flat[i] -= shift[i] + common[i]", "flat[i] -= shift[i]"),
    "a sum": ("sum[i] += weight * model[i]", "sum[i] = weight * model[i]"),
    "what is learned": ("part * (model[i] - origin[i])", "part * model[i]"),
    "the mean": ("control[i] -= moved[i]", "control[i] += moved[i]"),
}
EVERYTHING = Rule(0.1, 0.1, 0.9, nesterov=True, shifted=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SDFEEL_CACHE", str(tmp_path))
    return tmp_path / "fast"


def mistaken(monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    right, wrong = MISTAKES[mistake]

    def generate(*arguments: object) -> str:
        text = compiled_text(*arguments)
        assert right in text
        return text.replace(right, wrong)

    compiled_text = compiled.generate
    monkeypatch.setattr(compiled, "generate", generate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_wrong_kernel_is_refused_by_name(
    cache: Path, monkeypatch: pytest.MonkeyPatch, mistake: str, dtype: torch.dtype
) -> None:
    mistaken(monkeypatch, mistake)
    said = r".* compiles this network wrongly for native at -O1: .* of a batch of \d+ .* is off by"
    with pytest.raises(Unsupported, match=said) as caught:
        compile_model(NETWORK, "cross-entropy", SHAPE, dtype, "-O1", rule=EVERYTHING)
    assert "\n" not in caught.value.reason
    assert not list(cache.glob("*.so"))  # what is wrong is not kept
    (verdict,) = cache.glob("*.json")
    assert json.loads(verdict.read_text())["verdict"] in caught.value.reason
    # It stays refused, and the compiler is not asked again.
    monkeypatch.setattr(compiled, "compile_text", None)
    with pytest.raises(Unsupported, match=said):
        compile_model(NETWORK, "cross-entropy", SHAPE, dtype, "-O1", rule=EVERYTHING)


def test_the_proof_is_kept_and_grows(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_model(NETWORK, "mse", SHAPE, optimise="-O1", batch_size=5)
    assert {1, 5, first.lanes - 1, first.lanes, first.lanes + 1} <= set(first.proof["checks"])
    assert {first.block - 1, first.block, first.block + 1} <= set(first.proof["checks"])
    assert {first.at_once - 1, first.at_once, first.at_once + 1} <= set(first.proof["checks"])
    assert first.proof["verdict"] == "agrees with autograd"
    assert first.proof["target"] == "native"
    assert first.proof["optimise"] == "-O1"
    # Another batch size is checked where it is new, without the compiler.
    monkeypatch.setattr(compiled, "compile_text", None)
    second = compile_model(NETWORK, "mse", SHAPE, optimise="-O1", batch_size=12)
    assert second.from_cache
    assert set(second.proof["checks"]) == {*first.proof["checks"], 12}
    third = compile_model(NETWORK, "mse", SHAPE, optimise="-O1")
    assert third.proof == second.proof


def test_a_large_batch_costs_no_more_than_three_blocks() -> None:
    sizes = batches_to_check(block=36, lanes=16, at_once=10, batch_size=100_007)
    assert max(sizes) == 2 * 36 + 100_007 % 36
    assert 70 in batches_to_check(block=36, lanes=16, at_once=10, batch_size=70)


def test_the_caller_s_random_numbers_and_weights_stay(cache: Path) -> None:
    module = paper_cnn()
    before = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    compile_model(module, "cross-entropy", (1, 28, 28), optimise="-O1", batch_size=10)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    after = torch.nn.utils.parameters_to_vector(module.parameters()).detach()
    np.testing.assert_array_equal(after.numpy(), before.numpy())
