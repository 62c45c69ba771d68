"""The compiler is found, asked once, and its absence is said."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fast_networks import autograd, data, vector
from torch import nn

from sdfeel.simulation.engines.fast import Unsupported, compile_model, compiler

MODULE = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SDFEEL_CACHE", str(tmp_path))
    return tmp_path / "fast"


def compiled(optimise: str = "-O1") -> bool:
    return compile_model(MODULE, "cross-entropy", (1, 4, 4), optimise=optimise).from_cache


def test_the_second_time_is_a_load(cache: Path) -> None:
    assert not compiled()
    assert compiled()
    assert not compiled("-O0")  # other flags, other key
    assert len(list(cache.glob("*.so"))) == 2
    assert not list(cache.glob(".build-*"))


@pytest.mark.parametrize("damage", [b"", b"not a library"])
def test_a_damaged_file_is_built_again(cache: Path, damage: bytes) -> None:
    assert not compiled()
    (library,) = cache.glob("*.so")
    library.unlink()  # a process may have the old file open: never write into it
    library.write_bytes(damage)
    assert not compiled()
    assert compiled()


def test_without_a_compiler_the_reason_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("SDFEEL_CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match="no C compiler: install one"):
        compiled()


def test_a_compiler_that_does_not_exist(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDFEEL_CC", "no-such-compiler")
    with pytest.raises(Unsupported, match=r"no-such-compiler.*no such program"):
        compiled()


def test_a_compiler_that_fails(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDFEEL_CC", f"{sys.executable} -c 'import sys; sys.exit(3)'")
    with pytest.raises(Unsupported, match="does not run"):
        compiled()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SDFEEL_CACHE", str(tmp_path / "file"))
    with pytest.raises(Unsupported, match="cannot be kept"):
        compiled()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the ziglang wheel")
def test_the_wheel_alone_is_enough(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("SDFEEL_CC", raising=False)
    compiler._version.cache_clear()
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    model = compile_model(MODULE, "cross-entropy", (1, 4, 4))
    inputs, targets = data(MODULE, (1, 4, 4), 9, "cross-entropy", torch.float32)
    _, expected = autograd(MODULE, "cross-entropy", inputs, targets)
    _, own = model.gradient(vector(MODULE), inputs, targets)
    np.testing.assert_allclose(own, expected, atol=1e-6)
