"""Who is at the other end: credentials of this node, and the checks of everybody else's."""

from __future__ import annotations

import contextlib
import datetime
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from cryptography import x509

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.model.wire import Refused
from sdfeel.errors import InputError

__all__ = ["Credentials", "Identity", "check", "identify", "identity_of"]


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


class Credentials:
    """A node's own certificate and key, the CA and the revocation list, read again when changed."""

    def __init__(self, deployment: Deployment, role: str, name: str) -> None:
        self.plaintext = deployment.security.plaintext
        folder = deployment.path(deployment.security.folder)
        self._own = folder / role / f"{name}.pem"
        self._ca = folder / "ca.pem"
        self._revoked = folder / "revoked.pem"
        self._revoked_stamp: tuple[int, int] | None = None
        self._serials: frozenset[int] = frozenset()
        if not self.plaintext:
            self._check_files()

    def _check_files(self) -> None:
        for path in (self._own, self._ca):
            if not path.is_file():
                raise InputError(
                    "certificate", str(path), "is missing; `sdfeel provision` makes it"
                )
        if stat.S_IMODE(self._own.stat().st_mode) & 0o077:
            raise InputError(
                "certificate", str(self._own), "holds a private key and must have mode 600"
            )

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes when the node's certificate was renewed."""
        return (0, 0) if self.plaintext else _stamp(self._own)

    def own_pem(self) -> bytes:
        """Certificate and private key."""
        return self._own.read_bytes()

    def authority(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self._ca.read_bytes())

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
        pem = self._own.read_bytes()
        return grpc.ssl_server_certificate_configuration([(pem, pem)], self._ca.read_bytes())

    def channel(
        self, address: str, edge: str, options: Iterable[tuple[str, int]]
    ) -> grpc.aio.Channel:
        """To an edge, which must prove to be the one of that name."""
        extra: list[tuple[str, int | str]] = list(options)
        if self.plaintext:
            return grpc.aio.insecure_channel(address, options=extra)
        pem = self._own.read_bytes()
        credentials = grpc.ssl_channel_credentials(self._ca.read_bytes(), pem, pem)
        extra.append(("grpc.ssl_target_name_override", f"{edge}.edge.sdfeel"))
        return grpc.aio.secure_channel(address, credentials, options=extra)

    def is_revoked(self, serial: int) -> bool:
        if self.plaintext:
            return False
        stamp = _stamp(self._revoked)
        if stamp != self._revoked_stamp:
            self._revoked_stamp = stamp
            # A list that is damaged, or that the CA did not sign, is no list: keep the last one.
            with contextlib.suppress(OSError, ValueError):
                ca = x509.load_pem_x509_certificate(self._ca.read_bytes())
                crl = x509.load_pem_x509_crl(self._revoked.read_bytes())
                if crl.is_signature_valid(ca.public_key()):  # type: ignore[arg-type]
                    self._serials = frozenset(entry.serial_number for entry in crl)
        return serial in self._serials


def identify(context: grpc.aio.ServicerContext, credentials: Credentials) -> Identity | None:
    """Who calls; None in plain text, where nobody can tell. A bad certificate raises Refused."""
    if credentials.plaintext:
        return None
    found = context.auth_context().get("x509_pem_cert")
    if not found:
        raise Refused("certificate", "no certificate")
    identity = identity_of(x509.load_pem_x509_certificate(found[0]))
    check(identity, credentials)
    return identity


def identity_of(certificate: x509.Certificate) -> Identity:
    """The name and role that stand in a certificate."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for uri in names.get_values_for_type(x509.UniformResourceIdentifier):
        parts = urlsplit(uri)
        if parts.scheme == "sdfeel":
            break
    else:
        raise Refused("certificate", "no sdfeel:// name in the certificate")
    return Identity(
        parts.netloc,
        parts.path.lstrip("/"),
        certificate.serial_number,
        certificate.not_valid_after_utc,
    )


def check(identity: Identity, credentials: Credentials) -> None:
    """Raises Refused if the certificate has expired or is revoked; also asked of open streams."""
    if identity.has_expired:
        raise Refused("expired", f"the certificate of {identity.role}/{identity.name} has expired")
    if credentials.is_revoked(identity.serial):
        raise Refused("revoked", f"the certificate of {identity.role}/{identity.name} is revoked")


def _stamp(path: Path) -> tuple[int, int]:
    """Of a file that is only ever replaced: its inode changes even within one clock tick."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return found.st_ino, found.st_mtime_ns
