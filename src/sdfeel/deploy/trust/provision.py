"""Certificates: a CA of the deployment's own, and a short-lived certificate for every node.

A node's name and role stand in its certificate, as the URI `sdfeel://edge/NAME`. Whoever dials
checks the host name `NAME.edge.sdfeel`, so a node is who it is wherever it runs. Certificates are
renewed by writing new files in the old places: programs read them again by themselves.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sdfeel.deploy.config import Deployment
from sdfeel.errors import InputError

__all__ = ["ROLES", "Authority", "provision"]

ROLES = ("edge", "client", "operator")
OPERATOR = "operator"
CA_DAYS = 3650
# Clocks of nodes differ a little; a certificate counts from a bit before it was made.
SKEW = datetime.timedelta(minutes=5)


class Authority:
    """The deployment's CA: signs, renews and revokes. Its key stays with the operator."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError) as problem:
            raise InputError(
                "certificates", str(folder), f"no CA there ({problem}); run `sdfeel provision`"
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - we made it
        self._key = key

    @classmethod
    def create(cls, folder: Path, name: str) -> Authority:
        """A new CA; an existing one is never overwritten."""
        if (folder / "ca.key").exists():
            raise InputError(
                "certificates", str(folder), "has a CA already; renew certificates with it instead"
            )
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"{name} CA")
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            _builder(subject, subject, key.public_key(), now + datetime.timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(folder / "ca.key", _key_pem(key), secret=True)
        _write(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM))
        authority = cls(folder)
        authority.revoke([])
        return authority

    def issue(self, role: str, name: str, hours: float = 24.0) -> None:
        """Writes NAME.key (mode 600) and NAME.pem; also how a certificate is renewed."""
        if role not in ROLES:
            raise InputError("role", role, f"one of {', '.join(ROLES)}")
        key = ec.generate_private_key(ec.SECP256R1())
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=hours)
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(f"sdfeel://{role}/{name}"),
            x509.DNSName(f"{name}.{role}.sdfeel"),
        ]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role == "edge":
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            _builder(_name(name), self._certificate.subject, key.public_key(), until)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        place = self.folder / role
        place.mkdir(exist_ok=True)
        # One file for both, renamed into place: a reader never sees the key of another certificate.
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        _write(place / f"{name}.pem", _key_pem(key) + pem, secret=True)

    def revoke(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Adds (role, name) to the revocation list that edges read, signed by the CA."""
        path = self.folder / "revoked.pem"
        serials = set()
        if path.exists():
            serials = {entry.serial_number for entry in x509.load_pem_x509_crl(path.read_bytes())}
        for role, name in nodes:
            file = self.folder / role / f"{name}.pem"
            if not file.exists():
                raise InputError("node", f"{role}/{name}", "has no certificate here to revoke")
            serials.add(x509.load_pem_x509_certificate(file.read_bytes()).serial_number)
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now)
            .next_update(now + datetime.timedelta(days=CA_DAYS))
        )
        for serial in sorted(serials):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        crl = builder.sign(self._key, hashes.SHA256())
        _write(path, crl.public_bytes(serialization.Encoding.PEM))


def provision(deployment: Deployment, hours: float = 24.0, only: str | None = None) -> list[str]:
    """Makes the CA if there is none and a certificate for every node (or for `only` one)."""
    folder = deployment.path(deployment.security.folder)
    exists = (folder / "ca.key").exists()
    authority = Authority(folder) if exists else Authority.create(folder, deployment.name)
    nodes = [("edge", edge.name) for edge in deployment.edges]
    nodes += [("client", client.name) for client in deployment.clients]
    nodes.append(("operator", OPERATOR))
    if only is not None:
        nodes = [node for node in nodes if node[1] == only]
        if not nodes:
            raise InputError("node", only, "is not in the deployment file")
    for role, name in nodes:
        authority.issue(role, name, hours)
    return [f"{role}/{name}" for role, name in nodes]


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, until) - SKEW)
        .not_valid_after(until)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    """All at once; a secret is never readable by others, not even for a moment."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(
        temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if secret else 0o644
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
