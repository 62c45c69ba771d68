"""Certificates for deployments in memory: a number and a time for each, and clocks that are wrong.

What a node sends as its proof is that number. Whether signatures hold is for `test_certificates`.
A certificate counts from when it was made until its end, by the clock of the node that looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from virtual import NODE

from sdfeel.deploy.client import client as client_module
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.edge import edge as edge_module
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Credentials, Identity, check

EPOCH = 1_700_000_000.0  # that clocks show when a history begins
SKEW = 300.0  # by which certificates begin early


class Clocks:
    """What the wall clock of each node shows."""

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self.now = now
        self.wrong: dict[str, float] = {}

    def time(self) -> float:
        """By the clock of the node whose code runs."""
        return EPOCH + self.now() + self.wrong.get(NODE.get(), 0.0)

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


@dataclass(frozen=True)
class TwinIdentity(Identity):
    """As a certificate names a node; whether it has expired is for the clock of who asks."""

    ends: float = math.inf
    clocks: Any = None

    @property
    def has_expired(self) -> bool:
        return self.clocks is not None and self.ends <= self.clocks.time()


class TwinAuthority:
    """Issues and revokes.

    hours  that a certificate is good for
    """

    def __init__(self, clocks: Clocks | None = None) -> None:
        self.clocks = clocks or Clocks()
        self.serials: dict[str, int] = {}
        self.spans: dict[int, tuple[float, float]] = {}
        self.revoked: set[int] = set()
        self._last = 0

    def renew(self, name: str, seconds: float = math.inf) -> None:
        self._last += 1
        self.serials[name] = self._last
        now = EPOCH + self.clocks.now()
        self.spans[self._last] = now - SKEW, now + seconds

    def revoke(self, name: str) -> None:
        self.revoked.add(self.serials[name])

    def identity(self, role: str, name: str) -> TwinIdentity:
        if name not in self.serials:
            self.renew(name)
        serial = self.serials[name]
        return TwinIdentity(role, name, serial, None, self.spans[serial][1], self.clocks)

    def is_good(self, serial: int) -> bool:
        """What TLS looks at, by the clock of the node whose code runs."""
        begin, end = self.spans[serial]
        return begin <= self.clocks.time() < end

    def credentials(self, deployment: Deployment, role: str, name: str) -> TwinCredentials:
        return TwinCredentials(self, deployment, role, name)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on edges and clients have certificates of this authority."""
        monkeypatch.setattr(edge_module, "Credentials", self.credentials)
        monkeypatch.setattr(client_module, "Credentials", self.credentials)


class TwinCredentials(Credentials):
    """Of one node, as the authority has them at this moment."""

    def __init__(
        self, authority: TwinAuthority, deployment: Deployment, role: str, name: str
    ) -> None:
        super().__init__(deployment, role, name)  # in plain text, so it reads no files
        self._authority = authority
        authority.identity(role, name)

    @property
    def stamp(self) -> tuple[int, int]:
        return self._authority.serials[self.name], 0

    @property
    def has_expired(self) -> bool:
        return self._authority.identity(self.role, self.name).has_expired

    def is_revoked(self, serial: int) -> bool:
        return serial in self._authority.revoked

    def challenge(self) -> bytes:
        return b"nonce"

    def prove(self, nonce: bytes, caller: Identity | None) -> dict[str, bytes]:
        return {"certificate": str(self.stamp[0]).encode()} if nonce else {}

    def check_edge(self, edge: str, answer: Any, nonce: bytes) -> Identity:
        serial = int(answer.certificate)
        end = self._authority.spans[serial][1]
        identity = TwinIdentity("edge", edge, serial, None, end, self._authority.clocks)
        check(identity, self)
        return identity


class TwinNotary:
    """In the place of signatures: the number of the certificate, looked at as theirs is."""

    def __init__(self, credentials: TwinCredentials) -> None:
        self._credentials = credentials

    @property
    def stamp(self) -> tuple[int, int]:
        return self._credentials.stamp

    def sign(self, text: bytes) -> tuple[bytes, bytes]:
        return str(self.stamp[0]).encode(), b""

    def check(self, text: bytes, certificate: bytes, signature: bytes, edge: str) -> None:
        try:
            serial = int(certificate)
        except ValueError:
            raise Refused("signature", "no certificate") from None
        authority = self._credentials._authority
        if serial not in authority.spans:
            raise Refused("signature", "not a certificate of this deployment's CA")
        begin, end = authority.spans[serial]
        if begin > authority.clocks.time():
            raise Refused("signature", "the certificate is not (yet) good for this")
        check(TwinIdentity("edge", edge, serial, None, end, authority.clocks), self._credentials)
