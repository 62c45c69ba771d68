"""From C text to the bytes of a library: finding a compiler and telling it for what to build.

The compiler is the one in `SDFEEL_CC`, else `cc`, `gcc` or `clang`, else the `ziglang` wheel, which
`pip install 'sdfeel[compiler]'` brings.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from pathlib import Path

from .errors import Unsupported

_FLAGS = ("-std=gnu11", "-shared", "-fPIC", "-w")
# Sums may be taken in another order and fused; NaN and infinity stay what they are.
_ARITHMETIC = ("-fno-math-errno", "-ffp-contract=fast")


@dataclass(frozen=True)
class Toolchain:
    """A compiler, how hard it is to try, and the processor it is to build for."""

    compiler: tuple[str, ...]
    banner: str  # all that the compiler says of itself
    optimise: str
    target: str  # what `-march` is to say: "native", "x86-64-v3", ...

    @property
    def name(self) -> str:
        """The command without the folder of its program."""
        return " ".join((Path(self.compiler[0]).name, *self.compiler[1:]))

    @property
    def version(self) -> str:
        return (self.banner.strip().splitlines() or ["unknown"])[0]

    @property
    def command(self) -> list[str]:
        zig = "ziglang" in self.compiler or Path(self.compiler[0]).name == "zig"
        target = self.target.replace("-", "_") if zig else self.target
        return [*self.compiler, self.optimise, f"-march={target}", *_FLAGS, *_ARITHMETIC]

    def key(self, source: str) -> str:
        """Covers all that the library depends on: a folder shared by machines is harmless."""
        parts = [source, *self.command, self.banner, _processor()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]

    def __str__(self) -> str:
        return f"{self.version}, {self.optimise} -march={self.target}"


def find_compiler() -> tuple[str, ...]:
    """The command of a C compiler, as a list of words."""
    chosen = os.environ.get("SDFEEL_CC")
    if chosen:
        words = tuple(shlex.split(chosen))
        if not words or shutil.which(words[0]) is None:
            raise Unsupported(f"SDFEEL_CC = {chosen!r}: there is no such program")
        return words
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise Unsupported(
        "no C compiler: install one (cc, gcc or clang), or `pip install 'sdfeel[compiler]'`, "
        "or set SDFEEL_CC"
    )


def find_toolchain(optimise: str = "-O3", target: str = "native") -> Toolchain:
    """The compiler of this machine, asked who it is."""
    if sys.platform == "win32":
        raise Unsupported("the fast engine is not built on Windows")
    compiler = find_compiler()
    return Toolchain(compiler, _banner(compiler), optimise, target)


@functools.lru_cache(maxsize=8)
def _banner(compiler: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(  # noqa: S603
            [*compiler, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unsupported(f"the C compiler {' '.join(compiler)} does not run: {error}") from None
    return done.stdout


@functools.lru_cache(maxsize=1)
def _processor() -> str:
    """Describe the processor: what `-march=native` depends on."""
    lines: set[str] = set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.split("\t")[0] in ("flags", "Features", "model name", "CPU part"):
                lines.add(line)
    except OSError:
        lines.add(platform.processor())
    return "\n".join([platform.machine(), *sorted(lines)])


def _complaint(output: str) -> str:
    """The line that says what is wrong, not the one that says where."""
    lines = output.strip().splitlines() or ["no message"]
    return next((line for line in lines if "error:" in line), lines[0])


def compile_text(source: str, toolchain: Toolchain) -> bytes:
    """The shared library of `source`, made in a folder that only this user can enter."""
    command = toolchain.command
    try:
        with tempfile.TemporaryDirectory(prefix="sdfeel-") as folder:
            text, library = Path(folder, "network.c"), Path(folder, "network.so")
            text.write_text(source)
            done = subprocess.run(  # noqa: S603
                [*command, "-o", str(library), str(text), "-lm"],
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            if done.returncode or not library.exists():
                raise Unsupported(f"the C compiler {command[0]} failed: {_complaint(done.stderr)}")
            return library.read_bytes()
    except (OSError, subprocess.SubprocessError) as error:
        raise Unsupported(f"the C compiler failed: {error}") from None
