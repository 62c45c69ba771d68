"""Certificates for deployments in memory: a number for each, renewed and revoked at once.

What a node sends as its proof is that number. Whether signatures hold is for `test_certificates`.
"""

from __future__ import annotations

from typing import Any

import pytest

from sdfeel.deploy.client import client as client_module
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.trust.identity import Credentials, Identity, check


class TwinAuthority:
    """Issues and revokes."""

    def __init__(self) -> None:
        self.serials: dict[str, int] = {}
        self.revoked: set[int] = set()
        self._last = 0

    def renew(self, name: str) -> None:
        self._last += 1
        self.serials[name] = self._last

    def revoke(self, name: str) -> None:
        self.revoked.add(self.serials[name])

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on edges and clients have certificates of this authority."""

        def make(deployment: Deployment, role: str, name: str) -> TwinCredentials:
            return TwinCredentials(self, deployment, role, name)

        monkeypatch.setattr(edge_module, "Credentials", make)
        monkeypatch.setattr(client_module, "Credentials", make)


class TwinCredentials(Credentials):
    """Of one node, as the authority has them at this moment."""

    def __init__(
        self, authority: TwinAuthority, deployment: Deployment, role: str, name: str
    ) -> None:
        super().__init__(deployment, role, name)  # in plain text, so it reads no files
        self._authority = authority
        if name not in authority.serials:
            authority.renew(name)

    @property
    def stamp(self) -> tuple[int, int]:
        return self._authority.serials[self.name], 0

    def is_revoked(self, serial: int) -> bool:
        return serial in self._authority.revoked

    def challenge(self) -> bytes:
        return b"nonce"

    def prove(self, nonce: bytes, caller: Identity | None) -> dict[str, bytes]:
        return {"certificate": str(self.stamp[0]).encode()} if nonce else {}

    def check_edge(self, edge: str, answer: Any, nonce: bytes) -> Identity:
        identity = Identity("edge", edge, int(answer.certificate))
        check(identity, self)
        return identity
