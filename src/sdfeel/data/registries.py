"""Package registries as sources: npm as the user configured it, Debian by apt or a mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NPM_DEFAULT = "https://registry.npmjs.org/"
DEBIAN_MIRROR = "http://deb.debian.org/debian/"
APT_SECONDS = 300


class SourceError(Exception):
    """A source that did not deliver; the text is the reason. It never leaves this package."""


def npm_address(package: str) -> str:
    """Return where the configured npm registry keeps the tarball of a package, NAME-VERSION."""
    name = package.rpartition("-")[0]
    return f"{_npm_registry().rstrip('/')}/{name}/-/{package}.tgz"


def _npm_registry() -> str:
    """Return what npm would use: the environment, else the user's .npmrc, else the default."""
    settings = {name.lower(): value for name, value in os.environ.items() if value}
    if "npm_config_registry" in settings:
        return settings["npm_config_registry"]
    npmrc = Path(settings.get("npm_config_userconfig", "~/.npmrc")).expanduser()
    try:
        lines = npmrc.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return NPM_DEFAULT
    for line in reversed(lines):
        key, equals, value = line.partition("=")
        if equals and key.strip() == "registry":
            return os.path.expandvars(value.strip().strip("\"'")) or NPM_DEFAULT
    return NPM_DEFAULT


@contextmanager
def apt_package(package: str) -> Iterator[Path]:
    """Download the .deb of a package by `apt-get`, with its signature; delete it afterwards."""
    apt = shutil.which("apt-get")
    if apt is None:
        raise SourceError("there is no apt-get on this machine")
    with tempfile.TemporaryDirectory(prefix="sdfeel-apt-") as folder:
        try:
            done = subprocess.run(  # noqa: S603 (fixed arguments, no shell)
                [apt, "download", "-q", "-o", "Acquire::Retries=0", package],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=APT_SECONDS,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise SourceError(f"apt-get took longer than {APT_SECONDS} s") from None
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("E:")]
            raise SourceError(f"apt-get download failed: {' '.join(lines) or done.returncode}")
        (deb,) = Path(folder).glob(f"{package}_*.deb")
        yield deb
