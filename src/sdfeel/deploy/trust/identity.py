"""Who is at the other end: credentials of this node, and the checks of everybody else's."""

from __future__ import annotations

import datetime
import secrets
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.authority import SKEW
from sdfeel.deploy.trust.last_good import UNREADABLE, LastGood
from sdfeel.deploy.trust.proof import NONCE_BYTES, Signed, sign, verified
from sdfeel.deploy.trust.revocation import RevocationList
from sdfeel.errors import InputError

__all__ = [
    "Credentials",
    "Identity",
    "certificate_of",
    "check",
    "identify",
    "identity_of",
    "name_of",
]

T = TypeVar("T")


@dataclass(frozen=True)
class Identity:
    """A node as its certificate names it."""

    role: str
    name: str
    serial: int = 0
    until: datetime.datetime | None = None

    @property
    def has_expired(self) -> bool:
        return self.until is not None and self.until <= datetime.datetime.now(datetime.UTC)


@dataclass(frozen=True)
class _Own:
    """A node's file: certificate and private key."""

    pem: bytes
    certificate: x509.Certificate


def _parse_own(pem: bytes) -> _Own:
    certificate = x509.load_pem_x509_certificate(pem)
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key that `sdfeel provision` made")
    if key.public_key() != certificate.public_key():
        raise ValueError("the key belongs to another certificate")
    return _Own(pem, certificate)


def _parse_ca(pem: bytes) -> tuple[bytes, x509.Certificate]:
    return pem, x509.load_pem_x509_certificate(pem)


def _read(path: Path, parse: Callable[[bytes], T], is_private: bool = False) -> LastGood[T]:
    """For the first time: what is wrong is an InputError."""
    if not path.is_file():
        raise InputError("certificate", str(path), "is missing; `sdfeel provision` makes it")
    if is_private and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError("certificate", str(path), "holds a private key and must have mode 600")
    try:
        return LastGood(path, parse)
    except UNREADABLE as problem:
        raise InputError(
            "certificate",
            str(path),
            f"is damaged: {problem}; copy it again from where `sdfeel provision` wrote it",
        ) from None


class Credentials:
    """A node's own certificate and key, the CA and the revocation list, read again when changed."""

    def __init__(self, deployment: Deployment, role: str, name: str) -> None:
        self.plaintext = deployment.security.plaintext
        self.role, self.name = role, name
        folder = deployment.path(deployment.security.folder)
        self._revoked = RevocationList(folder / "revoked.pem", folder / "ca.pem")
        if not self.plaintext:
            self._own = _read(folder / role / f"{name}.pem", _parse_own, is_private=True)
            self._ca = _read(folder / "ca.pem", _parse_ca)

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes when the node's certificate was renewed, once the new file is whole."""
        return (0, 0) if self.plaintext else self._own.stamp

    def own_pem(self) -> bytes:
        """Certificate and private key."""
        return self._own.value.pem

    def authority(self) -> x509.Certificate:
        return self._ca.value[1]

    def server(self) -> grpc.ServerCredentials:
        """For a listener: the certificate is looked up anew for each connection."""
        last = self.stamp

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal last
            if self.stamp == last:
                return None
            last = self.stamp
            return self._configuration()

        return grpc.dynamic_ssl_server_credentials(
            self._configuration(), fetch, require_client_authentication=True
        )

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pem = self.own_pem()
        return grpc.ssl_server_certificate_configuration([(pem, pem)], self._ca.value[0])

    def channel(
        self, address: str, edge: str, options: Iterable[tuple[str, int]]
    ) -> grpc.aio.Channel:
        """To an edge, which must prove to be the one of that name."""
        extra: list[tuple[str, int | str]] = list(options)
        if self.plaintext:
            return grpc.aio.insecure_channel(address, options=extra)
        pem = self.own_pem()
        credentials = grpc.ssl_channel_credentials(self._ca.value[0], pem, pem)
        extra.append(("grpc.ssl_target_name_override", f"{edge}.edge.sdfeel"))
        return grpc.aio.secure_channel(address, credentials, options=extra)

    # The node's own certificate.

    @property
    def certificate(self) -> x509.Certificate | None:
        """The node's own, as it is now; None in plain text. While it is being replaced, the last.

        How long it still counts, and whether the revocation list came with it, is for `lifetime`.
        """
        return None if self.plaintext else self._own.value.certificate

    @property
    def has_expired(self) -> bool:
        """Whether the node's own certificate has: then there is no use in dialling anybody."""
        certificate = self.certificate
        return certificate is not None and certificate.not_valid_after_utc <= datetime.datetime.now(
            datetime.UTC
        )

    @property
    def is_foreign(self) -> bool:
        """Whether the node's own certificate is not of the CA in its ca.pem."""
        if self.plaintext:
            return False
        try:
            self._own.value.certificate.verify_directly_issued_by(self.authority())
        except (ValueError, TypeError, InvalidSignature):
            return True
        return False

    def list_problem(self) -> str:
        """What is wrong with the revocation list; "" if nothing is."""
        certificate = self.certificate
        return (
            ""
            if certificate is None
            else self._revoked.look(certificate.not_valid_before_utc + SKEW)
        )

    # The other end's.

    def is_revoked(self, serial: int) -> bool:
        return not self.plaintext and self._revoked.holds(serial)

    def challenge(self) -> bytes:
        """What a caller sends, to be signed by the edge."""
        return b"" if self.plaintext else secrets.token_bytes(NONCE_BYTES)

    def prove(self, nonce: bytes, caller: Identity | None) -> dict[str, bytes]:
        """An edge's answer to a challenge: the fields of a hello or of a status."""
        if self.plaintext or caller is None or len(nonce) != NONCE_BYTES:
            return {}
        who = f"{caller.role}/{caller.name}"
        certificate, signature = sign(self.own_pem(), nonce, who, self.name)
        return {"certificate": certificate, "proof": signature}

    def check_edge(self, edge: str, answer: Signed, nonce: bytes) -> Identity | None:
        """Who answered, for `check` later on; Refused if it is revoked or proves nothing."""
        if self.plaintext:
            return None
        certificate = verified(self.authority(), answer, nonce, f"{self.role}/{self.name}", edge)
        identity = identity_of(certificate)
        if (identity.role, identity.name) != ("edge", edge):
            raise Refused("role", f"{identity.role}/{identity.name} answers as edge/{edge}")
        check(identity, self)
        return identity


def identity_of(certificate: x509.Certificate) -> Identity:
    """Role and name out of a certificate of the CA."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise Refused("certificate", "no names in the certificate") from None
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        parts = urlsplit(uri)
        if parts.scheme == "sdfeel":
            role, name = parts.netloc, parts.path.lstrip("/")
            return Identity(role, name, certificate.serial_number, certificate.not_valid_after_utc)
    raise Refused("certificate", "no sdfeel:// name in the certificate")


def identify(context: grpc.aio.ServicerContext, credentials: Credentials) -> Identity | None:
    """Who calls; None in plain text, where nobody can tell. A bad certificate raises Refused."""
    if credentials.plaintext:
        return None
    pem = certificate_of(context)
    if not pem:
        raise Refused("certificate", "no certificate")
    identity = identity_of(x509.load_pem_x509_certificate(pem))
    check(identity, credentials)
    return identity


def certificate_of(context: grpc.aio.ServicerContext) -> bytes:
    """The caller's certificate as a PEM file has it; b"" in plain text."""
    pems = context.auth_context().get("x509_pem_cert")
    return bytes(pems[0]) if pems else b""


def name_of(pem: bytes) -> str:
    """Role and name in a certificate, for people; of anything."""
    try:
        identity = identity_of(x509.load_pem_x509_certificate(pem))
    except (Refused, *UNREADABLE):
        return "a caller without a name"
    return f"{identity.role}/{identity.name}"


def check(identity: Identity, credentials: Credentials) -> None:
    """Raises Refused if the certificate has expired or is revoked; also asked of open streams."""
    if identity.has_expired:
        raise Refused("expired", f"the certificate of {identity.role}/{identity.name} has expired")
    if credentials.is_revoked(identity.serial):
        raise Refused("revoked", f"the certificate of {identity.role}/{identity.name} is revoked")
