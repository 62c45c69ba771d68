"""What an edge says about itself is signed with its certificate's key, for those who hear of it
from others.
"""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.identity import Credentials, Identity, check, identity_of

__all__ = ["Notary"]

ALGORITHM = ec.ECDSA(hashes.SHA256())
LONGEST = 8192  # bytes of a certificate
KNOWN = 256  # certificates that were checked and are kept


class Notary:
    """Signs for one node, and checks what others have signed. In plain text nobody signs."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._stamp: tuple[int, int] | None = None
        self._known: dict[bytes, tuple[Identity, ec.EllipticCurvePublicKey]] = {}

    @property
    def stamp(self) -> tuple[int, int]:
        """Changes with the certificate: what it has signed must be signed anew."""
        return self._credentials.stamp

    def sign(self, text: bytes) -> tuple[bytes, bytes]:
        """Our certificate (DER) and the signature."""
        if self._credentials.plaintext:
            return b"", b""
        if self._stamp != self._credentials.stamp:
            self._stamp = self._credentials.stamp
            pem = self._credentials.own_pem()
            key = serialization.load_pem_private_key(pem, None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)  # noqa: S101 - provision made it
            self._key = key
            certificate = x509.load_pem_x509_certificate(pem)
            self._certificate = certificate.public_bytes(serialization.Encoding.DER)
        return self._certificate, self._key.sign(text, ALGORITHM)

    def check(self, text: bytes, certificate: bytes, signature: bytes, edge: str) -> None:
        """Raises Refused unless this edge has signed the text, with a good certificate of ours."""
        if self._credentials.plaintext:
            return
        identity, key = self._identify(certificate)
        if (identity.role, identity.name) != ("edge", edge):
            raise Refused("signature", f"{identity.role}/{identity.name} signs for edge/{edge}")
        check(identity, self._credentials)
        try:
            key.verify(signature, text, ALGORITHM)
        except InvalidSignature:
            raise Refused("signature", f"edge/{edge} has not signed this") from None

    def _identify(self, der: bytes) -> tuple[Identity, ec.EllipticCurvePublicKey]:
        if der not in self._known:
            certificate = self._read(der)
            while len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[der] = certificate
        return self._known[der]

    def _read(self, der: bytes) -> tuple[Identity, ec.EllipticCurvePublicKey]:
        if not 0 < len(der) <= LONGEST:
            raise Refused("signature", f"a certificate of {len(der)} bytes")
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self._credentials.authority())
        except (ValueError, TypeError, InvalidSignature):
            raise Refused("signature", "not a certificate of this deployment's CA") from None
        key = certificate.public_key()
        now = datetime.datetime.now(datetime.UTC)
        if not isinstance(key, ec.EllipticCurvePublicKey) or certificate.not_valid_before_utc > now:
            raise Refused("signature", "the certificate is not (yet) good for this")
        return identity_of(certificate), key
