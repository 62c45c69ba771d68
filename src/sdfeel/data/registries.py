"""Package registries as sources: npm as the user configured it, Debian by apt or a mirror."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from sdfeel.data.archives import ar_member, gunzip, tar_members
from sdfeel.data.download import SourceError

__all__ = ["apt_package", "debian_address", "debian_files", "npm_address"]

NPM_DEFAULT = "https://registry.npmjs.org/"
DEBIAN_DEFAULT = "http://deb.debian.org/debian/"
APT_SECONDS = 300


def npm_address(package: str, version: str) -> str:
    """Where the configured npm registry keeps the tarball of a package."""
    return f"{_npm_registry().rstrip('/')}/{package}/-/{package}-{version}.tgz"


def _npm_registry() -> str:
    """What npm itself would use: the environment, else the user's .npmrc, else the default."""
    settings = {name.lower(): value for name, value in os.environ.items() if value}
    if found := settings.get("npm_config_registry"):
        return found
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


def debian_address(pool_path: str) -> str:
    """Where the default mirror keeps a package; apt, tried before it, knows the user's own."""
    return DEBIAN_DEFAULT + pool_path


def apt_package(
    package: str, inside: str, limits: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    """The files of a package that `apt-get download` brings: from the user's mirrors, signed."""
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
        yield from debian_files(deb, inside, limits)


def debian_files(deb: Path, inside: str, limits: Mapping[str, int]) -> Iterator[tuple[str, bytes]]:
    """The gzipped files `inside` a folder of a Debian package, unpacked, by their plain names."""
    data = io.BytesIO(ar_member(deb, "data.tar", limit=sum(limits.values())))
    members = {f"{inside}/{name}.gz": limit for name, limit in limits.items()}
    for name, content in tar_members(data, members):
        plain = name.rpartition("/")[2].removesuffix(".gz")
        yield plain, gunzip(io.BytesIO(content), limits[plain])
