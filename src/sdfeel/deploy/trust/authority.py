"""The deployment's own CA: signs, renews and revokes. Its key stays with the operator.

ca.pem          the CA's certificate, for every node
ca.key          its key, mode 600, with a passphrase if the operator wants one
revoked.pem     the list of revoked certificates, signed by the CA, for every node; signed anew
                with every certificate, so that a list that was not copied is noticed
issued.jsonl    every certificate ever issued, so that all of a node can be revoked
ROLE/NAME.pem   a node's certificate and key in one file, mode 600
"""

from __future__ import annotations

import datetime
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sdfeel.deploy.config import NAME_PATTERN
from sdfeel.deploy.trust.last_good import UNREADABLE
from sdfeel.errors import InputError
from sdfeel.files import FileLock, write_atomically

__all__ = ["ROLES", "SHORTEST", "Authority", "Issued", "check_hours"]

ROLES = ("edge", "client", "operator")
CA_DAYS = 3650
# Clocks of nodes differ a little; a certificate counts from a bit before it was made.
SKEW = datetime.timedelta(minutes=5)
# Hours of a certificate: a shorter one would end before a timer has renewed it.
SHORTEST, LONGEST = 1, 1e9
NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True)
class Issued:
    """One line of issued.jsonl."""

    role: str
    name: str
    serial: int
    hours: float
    until: datetime.datetime


@dataclass(frozen=True)
class _Made:
    serial: int
    until: datetime.datetime
    pem: bytes


class Authority:
    """Opens the CA of a folder; `create` makes one."""

    def __init__(self, folder: Path, passphrase: bytes | None = None) -> None:
        self.folder = folder
        try:
            self.certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            pem = (folder / "ca.key").read_bytes()
        except (OSError, ValueError) as problem:
            raise InputError(
                "certificates", str(folder), f"no CA there ({problem}); run `sdfeel provision init`"
            ) from None
        if stat.S_IMODE((folder / "ca.key").stat().st_mode) & 0o077:
            raise InputError(
                "certificates",
                str(folder / "ca.key"),
                "is the key of the CA and others can read it: chmod 600, or better make a new CA",
            )
        self._key = _open_key(folder / "ca.key", pem, passphrase)

    @classmethod
    def create(cls, folder: Path, name: str, passphrase: bytes | None = None) -> Authority:
        """A new CA; an existing one is never overwritten."""
        if (folder / "ca.key").exists():
            raise InputError(
                "certificates", str(folder), "has a CA already; renew certificates with it instead"
            )
        folder.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"{name} CA")
        certificate = (
            _builder(subject, subject, key.public_key(), _now() + datetime.timedelta(days=CA_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        write_atomically(folder / "ca.key", _key_pem(key, passphrase), 0o600)
        write_atomically(folder / "ca.pem", _pem(certificate))
        authority = cls(folder, passphrase)
        authority.sign_list()
        return authority

    def protect(self, passphrase: bytes) -> None:
        """From now on the key needs this passphrase."""
        write_atomically(self.folder / "ca.key", _key_pem(self._key, passphrase), 0o600)

    def issue(self, role: str, name: str, hours: float = 24.0) -> None:
        """Writes ROLE/NAME.pem; also how a certificate is renewed."""
        self.issue_all([(role, name, hours)])

    def issue_all(self, nodes: Iterable[tuple[str, str, float]]) -> None:
        """The same for many (role, name, hours): all are made, or none is."""
        self.revoked()  # a damaged list is told before anything is issued
        made = [(self._make(*node), node) for node in nodes]
        self._note(
            [Issued(role, name, new.serial, hours, new.until) for new, (role, name, hours) in made]
        )
        for new, (role, name, _) in made:
            place = self.folder / role
            place.mkdir(exist_ok=True)
            # One file for both: a reader never sees the key of another certificate.
            write_atomically(place / f"{name}.pem", new.pem, 0o600)
        self.sign_list()

    def _make(self, role: str, name: str, hours: float) -> _Made:
        if role not in ROLES:
            raise InputError("role", role, f"one of {', '.join(ROLES)}")
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            remedy = "up to 63 of a-z, 0-9 and -, as in the deployment file; it is no path"
            raise InputError("name", name, remedy)
        check_hours(hours)
        key = ec.generate_private_key(ec.SECP256R1())
        end = self.certificate.not_valid_after_utc
        if not hours * 3600 < (end - _now()).total_seconds():
            raise InputError("hours", hours, f"the CA itself ends on {end:%Y-%m-%d}")
        until = _now() + datetime.timedelta(hours=hours)
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(f"sdfeel://{role}/{name}"),
            x509.DNSName(f"{name}.{role}.sdfeel"),
        ]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if role == "edge":
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        certificate = (
            _builder(_name(name), self.certificate.subject, key.public_key(), until)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return _Made(certificate.serial_number, until, _key_pem(key) + _pem(certificate))

    def _note(self, made: Iterable[Issued]) -> None:
        """On disk before the certificates are: one that nobody knows of cannot be revoked."""
        lines = [
            {
                "role": certificate.role,
                "name": certificate.name,
                "serial": f"{certificate.serial:x}",
                "hours": certificate.hours,
                "until": certificate.until.isoformat(timespec="seconds"),
            }
            for certificate in made
        ]
        handle = os.open(
            self.folder / "issued.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())

    def issued(self) -> list[Issued]:
        """All certificates, the oldest first; of an older CA also those that only lie there."""
        path = self.folder / "issued.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            certificates = [_issued(json.loads(line)) for line in lines if line.strip()]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise InputError("certificates", str(path), f"cannot be read: {problem}") from None
        known, noted = (
            {each.serial for each in certificates},
            {(each.role, each.name) for each in certificates},
        )
        for role in ROLES:
            for file in sorted((self.folder / role).glob("*.pem")):
                try:
                    made = x509.load_pem_x509_certificate(file.read_bytes())
                except UNREADABLE as problem:
                    if (role, file.stem) in noted:
                        continue  # every certificate of this node is in the list
                    remedy = f"is damaged: {problem}; remove it, and make a new one"
                    raise InputError("certificates", str(file), remedy) from None
                if made.serial_number not in known:
                    until = made.not_valid_after_utc
                    hours = (until - made.not_valid_before_utc - SKEW).total_seconds() / 3600
                    certificates.append(Issued(role, file.stem, made.serial_number, hours, until))
        return certificates

    def revoke(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Puts every certificate that (role, name) ever got, and that still counts, on the list."""
        every, serials = self.issued(), set[int]()
        for role, name in nodes:
            of_node = [each for each in every if (each.role, each.name) == (role, name)]
            if not of_node:
                raise InputError("node", f"{role}/{name}", "has no certificate here to revoke")
            serials |= {
                each.serial for each in of_node if each.until > _now() or each is of_node[-1]
            }
        self.sign_list(serials)

    def revoked(self) -> dict[int, datetime.datetime]:
        """Serial numbers on the list, and since when."""
        path = self.folder / "revoked.pem"
        if not path.exists():
            return {}
        try:
            crl = x509.load_pem_x509_crl(path.read_bytes())
        except UNREADABLE as problem:
            raise InputError(
                "certificates",
                str(path),
                f"is damaged: {problem}; copy it back from a node, or remove it and revoke again "
                "whoever was revoked",
            ) from None
        return {entry.serial_number: entry.revocation_date_utc for entry in crl}

    def sign_list(self, more: Iterable[int] = ()) -> None:
        """Writes the revocation list anew, with these serial numbers on it too."""
        with FileLock(self.folder / ".lock"):
            now = _now()
            entries = dict.fromkeys(more, now) | self.revoked()
            builder = (
                x509.CertificateRevocationListBuilder()
                .issuer_name(self.certificate.subject)
                .last_update(now)
                .next_update(now + datetime.timedelta(days=CA_DAYS))
            )
            for serial, since in sorted(entries.items()):
                entry = x509.RevokedCertificateBuilder().serial_number(serial)
                builder = builder.add_revoked_certificate(entry.revocation_date(since).build())
            signed = builder.sign(self._key, hashes.SHA256())
            pem = signed.public_bytes(serialization.Encoding.PEM)
            write_atomically(self.folder / "revoked.pem", pem)


def check_hours(hours: float) -> None:
    """Raise InputError unless a certificate may be valid for so long."""
    is_number = isinstance(hours, int | float) and not isinstance(hours, bool)
    if not is_number or not SHORTEST <= hours < LONGEST:
        raise InputError("hours", hours, f"a number of hours, {SHORTEST} or more")


def _issued(line: dict[str, str]) -> Issued:
    until = datetime.datetime.fromisoformat(line["until"])
    hours = float(line["hours"])
    return Issued(line["role"], line["name"], int(line["serial"], 16), hours, until)


def _open_key(path: Path, pem: bytes, passphrase: bytes | None) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except TypeError:  # it has one
        if passphrase is None:
            raise InputError(
                "certificates", str(path), "has a passphrase: set SDFEEL_CA_PASSPHRASE"
            ) from None
        try:
            key = serialization.load_pem_private_key(pem, passphrase)
        except ValueError:
            raise InputError("passphrase", "(not shown)", f"does not open {path}") from None
    except ValueError as problem:
        raise InputError("certificates", str(path), f"is no key: {problem}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError("certificates", str(path), "is not a key that `sdfeel provision` made")
    return key


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    until: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(_now(), until) - SKEW)
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


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    cipher: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        cipher = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, cipher)
