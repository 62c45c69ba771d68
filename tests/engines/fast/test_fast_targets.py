"""Every compiler that is here, for every processor that this one can stand in for.

gcc 12 compiled the kernels wrongly for AVX-512 only, and at -O2 for other networks than at -O3: a
suite that builds for its own machine with one compiler says little.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import zlib
from itertools import product
from pathlib import Path

import pytest
import torch
from fast_networks import check, random_convolutions, random_perceptron

# What each level needs beyond the one before, as /proc/cpuinfo writes it.
LEVELS = {
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}


def targets() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ["native"]
    has = {word for line in lines if line.startswith("flags") for word in line.split()}
    found = []
    for level, needs in LEVELS.items():
        if not needs <= has:
            break
        found.append(level)
    return found or ["native"]


def compilers() -> dict[str, str]:
    found = {name: path for name in ("gcc", "clang") if (path := shutil.which(name))}
    if importlib.util.find_spec("ziglang") is not None:
        found["zig"] = f"{sys.executable} -m ziglang cc"
    return found


def cases() -> list[tuple[str, str, str]]:
    """All of them with `make test-long`; else every target, and both levels of its best compiler.

    zig takes ten times as long as gcc, and compiles what gcc compiles.
    """
    best = next(iter(compilers()), "")
    return [
        (compiler, target, optimise)
        for compiler, target, optimise in product(sorted(compilers()), targets(), ("-O2", "-O3"))
        if os.environ.get("SDFEEL_LONG")
        or compiler == best
        or (compiler != "zig" and optimise == "-O3")
        or (compiler, target, optimise) == ("zig", targets()[-1], "-O3")
    ]


@pytest.mark.parametrize(("compiler", "target", "optimise"), cases())
def test_random_networks(
    compiler: str, target: str, optimise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other networks in every case; compiling already compares them with autograd."""
    monkeypatch.setenv("SDFEEL_CC", compilers()[compiler])
    seed = zlib.crc32(f"{compiler} {target} {optimise}".encode())
    check(*random_convolutions(seed), "mse", torch.float64, 20, optimise, target)
    dtype = torch.float32 if seed % 2 else torch.float64
    check(*random_perceptron(seed), "mse", dtype, 70, optimise, target)
