"""From C text to a loaded library: finding a compiler, and a cache so that it is asked once.

The compiler is the one in `SDFEEL_CC`, else `cc`, `gcc` or `clang`, else the `ziglang` wheel, which
`pip` installs like any other package. The cache lies in `SDFEEL_CACHE`, else in the user's cache
folder; its key covers the text, the flags, the compiler and the processor, so that a folder shared
between machines is harmless.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .errors import Unsupported

__all__ = ["build", "cache_folder", "find_compiler"]

_FLAGS = ("-march=native", "-std=gnu11", "-shared", "-fPIC", "-w")
# Sums may be taken in another order and fused; NaN and infinity stay what they are.
_ARITHMETIC = ("-fno-math-errno", "-ffp-contract=fast")


def cache_folder() -> Path:
    """Where compiled networks are kept."""
    chosen = os.environ.get("SDFEEL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sdfeel"


def find_compiler() -> tuple[str, ...]:
    """The command of a C compiler, as a list of words."""
    chosen = os.environ.get("SDFEEL_CC")
    if chosen:
        words = tuple(shlex.split(chosen))
        if not words or shutil.which(words[0]) is None:
            raise Unsupported(f"SDFEEL_CC = {chosen!r}: there is no such program")
        return words
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found:
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise Unsupported(
        "no C compiler: install one (cc, gcc or clang), or `pip install ziglang`, or set SDFEEL_CC"
    )


@functools.lru_cache(maxsize=8)
def _version(compiler: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            [*compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unsupported(f"the C compiler {' '.join(compiler)} does not run: {error}") from None
    return done.stdout


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """What `-march=native` depends on."""
    lines: set[str] = set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.split("\t")[0] in ("flags", "Features", "model name", "CPU part"):
                lines.add(line)
    except OSError:
        lines.add(platform.processor())
    return "\n".join([platform.machine(), *sorted(lines)])


def _compile(source: str, command: list[str], target: Path) -> None:
    """Write `target` at once or not at all: several processes may want it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
        text, library = Path(folder, "network.c"), Path(folder, "network.so")
        text.write_text(source)
        try:
            done = subprocess.run(  # noqa: S603
                [*command, "-o", str(library), str(text), "-lm"],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise Unsupported(f"the C compiler failed: {error}") from None
        if done.returncode or not library.exists():
            first = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise Unsupported(f"the C compiler {command[0]} failed: {first}")
        digest = hashlib.sha256(library.read_bytes()).hexdigest()
        Path(folder, "digest").write_text(digest)
        # The library before its digest: a library without one is not trusted and built again.
        library.replace(target)
        Path(folder, "digest").replace(target.with_suffix(".sha256"))


def _intact(target: Path) -> bool:
    try:
        wanted = target.with_suffix(".sha256").read_text().strip()
        return hashlib.sha256(target.read_bytes()).hexdigest() == wanted
    except OSError:
        return False


def build(source: str, optimise: str = "-O3") -> tuple[ctypes.CDLL, bool]:
    """The library of `source`, and whether it came from the cache."""
    if sys.platform == "win32":
        raise Unsupported("the fast engine is not built on Windows")
    compiler = find_compiler()
    command = [*compiler, optimise, *_FLAGS, *_ARITHMETIC]
    key = hashlib.sha256(
        "\0".join([source, *command, _version(compiler), _processor()]).encode()
    ).hexdigest()
    target = cache_folder() / "fast" / f"{key[:40]}.so"
    cached = _intact(target)
    try:
        if not cached:
            _compile(source, command, target)
        return ctypes.CDLL(str(target)), cached
    except OSError as error:
        raise Unsupported(f"the compiled network cannot be kept or loaded: {error}") from None
