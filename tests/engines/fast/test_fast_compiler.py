"""The compiler is found, asked once, and its absence is said; nobody else fills the cache."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from fast_networks import autograd, data, vector
from torch import nn

from sdfeel.engines.fast import Unsupported, compile_model, compiler
from sdfeel.engines.fast import cache as compiler_cache

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
    assert not list(cache.glob(".*"))  # nothing half done is left


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
@pytest.mark.parametrize("what", ["*.so", "*.json"])
def test_a_damaged_file_is_built_again(cache: Path, what: str, damage: bytes | None) -> None:
    assert not compiled()
    (path,) = cache.glob(what)
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    assert not compiled()
    assert compiled()


@pytest.mark.parametrize("notes", ["{}", "[]", "3", "[" * 100_000, '{"library": null, "key": "x"}'])
def test_notes_that_say_nothing_are_written_again(cache: Path, notes: str) -> None:
    assert not compiled()
    (path,) = cache.glob("*.json")
    path.write_text(notes)
    assert not compiled()
    assert compiled()


def test_notes_of_another_version_are_written_again(cache: Path) -> None:
    assert not compiled()
    (path,) = cache.glob("*.json")
    notes = json.loads(path.read_text())
    path.write_text(json.dumps({**notes, "checks": None}))
    assert not compiled()
    del notes["checks"]
    path.write_text(json.dumps(notes))
    assert not compiled()
    assert compiled()


def test_the_folder_is_private_whatever_the_umask(cache: Path) -> None:
    before = os.umask(0)
    try:
        compiled()
    finally:
        os.umask(before)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in cache.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(cache: Path, mode: int) -> None:
    compiled()
    cache.chmod(mode)
    with pytest.raises(Unsupported, match=rf"{cache} .* written to by others \(mode {mode:o}\)"):
        compiled()
    cache.chmod(0o755)  # as an older version left it: made private again
    assert compiled()
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled()
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    with pytest.raises(Unsupported, match=rf"{cache} .* belongs to user {me}, not to {me + 1}"):
        compiled()


@pytest.mark.parametrize("what", ["*.so", "*.json"])
def test_a_file_that_others_can_write_to_is_built_again(cache: Path, what: str) -> None:
    compiled()
    (path,) = cache.glob(what)
    path.chmod(0o666)
    with pytest.warns(UserWarning, match=rf"{path} can be written to by others \(mode 666\)"):
        assert not compiled()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert compiled()


def test_a_link_or_a_pipe_in_the_place_of_a_library_is_not_followed(cache: Path) -> None:
    compiled()
    (path,) = cache.glob("*.so")
    elsewhere = path.rename(cache.parent / "elsewhere.so")
    path.symlink_to(elsewhere)
    with pytest.warns(UserWarning, match="compiled again"):
        assert not compiled()
    path.unlink()
    os.mkfifo(path)  # opening one for reading would wait for a writer
    with pytest.warns(UserWarning, match="is not a file"):
        assert not compiled()
    assert compiled()


def test_what_is_loaded_is_what_was_checked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever exchanges the file after the check changes nothing: its bytes are in memory."""
    compiled()
    (path,) = cache.glob("*.so")
    load = compiler_cache.load

    def exchanged(library: bytes) -> object:
        path.unlink()
        path.write_bytes(b"another library")
        compiler_cache._loaded.clear()  # as in a new process
        return load(library)

    monkeypatch.setattr(compiler_cache, "load", exchanged)
    assert compiled()


def test_libraries_do_not_take_each_other_s_place() -> None:
    """The loader knows libraries by path, and the numbers of open files are used again."""
    texts = [f"int number(void) {{ return {n}; }}" for n in range(5)]
    toolchain = compiler.find_toolchain("-O0")
    libraries = [compiler.compile_text(text, toolchain) for text in texts]
    opened = len(os.listdir("/dev/fd"))  # noqa: PTH208
    loaded = [compiler_cache.load(library) for library in libraries]
    assert len(os.listdir("/dev/fd")) == opened  # noqa: PTH208
    assert [library.number() for library in loaded] == list(range(5))
    assert compiler_cache.load(libraries[3]) is loaded[3]


def test_without_a_compiler_the_reason_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("SDFEEL_CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unsupported, match=r"no C compiler: install one .*sdfeel\[compiler\]"):
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
    compiler._banner.cache_clear()
    assert compiler.find_compiler() == (sys.executable, "-m", "ziglang", "cc")
    model = compile_model(MODULE, "cross-entropy", (1, 4, 4))
    inputs, targets = data(MODULE, (1, 4, 4), 9, "cross-entropy", torch.float32)
    _, expected = autograd(MODULE, "cross-entropy", inputs, targets)
    _, own = model.gradient(vector(MODULE), inputs, targets)
    np.testing.assert_allclose(own, expected, atol=1e-6)
