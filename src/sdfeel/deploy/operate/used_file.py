"""The deployment file that an edge used last, kept in its state folder; see `peers.file_versions`.

Without one, an edge that comes back with a newer file would be alone with it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.peers.file_versions import file_digest
from sdfeel.deploy.topology import Topology
from sdfeel.errors import SdfeelError
from sdfeel.files import write_atomically

__all__ = ["NAME", "UsedFile", "used_file"]

NAME = "deployment.toml"


@dataclass(frozen=True)
class UsedFile:
    """What an edge begins with.

    file   where its operator has the newest, and its state folder
    newer  what it goes over to once all edges have it
    """

    file: Path
    state: Path
    deployment: Deployment
    newer: Deployment | None = None
    has_begun: bool = False

    def keep(self) -> None:
        """The edge has begun: it uses this file until it has a newer one."""
        if self.newer is None:
            write_atomically(self.state / NAME, self.file.read_bytes(), mode=0o600)

    def go_over(self) -> UsedFile:
        """All edges have the newer file."""
        assert self.newer is not None  # noqa: S101 - by its caller
        return UsedFile(self.file, self.state, self.newer, has_begun=True)


def used_file(file: Path, given: Deployment, edge: str, state: Path) -> UsedFile:
    """Choose between the file that an edge is given and the one that it used before."""
    before = _read(state / NAME, given.folder)
    if before is None or not _can_hold(before, given, edge):
        return UsedFile(file, state, given)
    return UsedFile(file, state, before, newer=given)


def _read(path: Path, folder: Path) -> Deployment | None:
    """None if there is none, or if it means nothing to this version of the program."""
    try:
        content = tomllib.loads(path.read_text())
        content.pop("folder", None)
        return parse_deployment(content, folder)
    except (OSError, ValueError, SdfeelError):
        return None


def _can_hold(before: Deployment, given: Deployment, edge: str) -> bool:
    """Whether they differ in what all edges must know the same of, and only the others wait."""
    if before.name != given.name or edge not in {server.name for server in before.edges}:
        return False
    return file_digest(Topology(before)) != file_digest(Topology(given))
