"""An edge proves to whoever dials it that its certificate is not a revoked one.

gRPC checks the edge's name and the CA, and nobody's revocation; nor does it show a caller the
certificate of the other end. So the caller sends a random number, and the edge signs it, together
with both names, with the key of the certificate that it holds now:

    caller -> hello, nonce          edge -> hello, certificate, signature(nonce, caller, edge)

Whoever stole an edge's old key cannot sign with the new one. Whoever passes the number on to the
real edge gets a signature for its own name, because the edge knows its caller from TLS.
"""

from __future__ import annotations

from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sdfeel.deploy.refused import Refused

__all__ = ["NONCE_BYTES", "Signed", "sign", "verified"]

NONCE_BYTES = 32
PURPOSE = b"sdfeel edge proof 1"


class Signed(Protocol):
    """A message that carries a proof: a hello, or the answer to a question about the status."""

    certificate: bytes
    proof: bytes


def _text(nonce: bytes, caller: str, edge: str) -> bytes:
    return b"\0".join((PURPOSE, caller.encode(), edge.encode(), nonce))


def sign(pem: bytes, nonce: bytes, caller: str, edge: str) -> tuple[bytes, bytes]:
    """(certificate, proof) with the certificate and key in `pem`; caller as `role/name`."""
    key = serialization.load_pem_private_key(pem, None)
    certificate = x509.load_pem_x509_certificate(pem)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key that `sdfeel provision` made")
    signature = key.sign(_text(nonce, caller, edge), ec.ECDSA(hashes.SHA256()))
    return certificate.public_bytes(serialization.Encoding.DER), signature


def verified(
    ca: x509.Certificate, message: Signed, nonce: bytes, caller: str, edge: str
) -> x509.Certificate:
    """The certificate that the edge proved to hold; raises Refused if it did not."""
    try:
        certificate = x509.load_der_x509_certificate(message.certificate)
        certificate.verify_directly_issued_by(ca)
        key = certificate.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError("another kind of key")
        key.verify(message.proof, _text(nonce, caller, edge), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError, TypeError):
        raise Refused("proof", f"edge {edge} does not prove that it has its certificate") from None
    return certificate
