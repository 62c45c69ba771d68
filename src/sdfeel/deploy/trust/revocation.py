"""The list of revoked certificates as a node reads it: again whenever the file changes."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509

__all__ = ["RevocationList", "stamp_of"]


class RevocationList:
    """`revoked.pem` of the deployment's CA. `problem` says what an operator should look at.

    A list that is damaged, that the CA did not sign, or that is older than the one in hand is no
    list: the last good one stays.
    """

    def __init__(self, path: Path, ca: Path) -> None:
        self.path = path
        self.problem = ""
        self._ca = ca
        self._stamp: tuple[int, int] | None = None
        self._serials: frozenset[int] = frozenset()
        self._signed_at = datetime.datetime.min.replace(tzinfo=datetime.UTC)

    def holds(self, serial: int) -> bool:
        self._refresh()
        return serial in self._serials

    def look(self, issued_at: datetime.datetime) -> str:
        """What is wrong with it, for a node whose certificate was issued then; "" if nothing is.

        The CA signs the list anew with every certificate, so a certificate that is newer than the
        list came here without it.
        """
        self._refresh()
        if not self.problem and self._signed_at < issued_at - datetime.timedelta(minutes=1):
            return f"{self.path.name} is older than this node's certificate: copy it too"
        return self.problem

    def _refresh(self) -> None:
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self.problem = self._read()

    def _read(self) -> str:
        try:
            ca = x509.load_pem_x509_certificate(self._ca.read_bytes())
            revoked = x509.load_pem_x509_crl(self.path.read_bytes())
            if not revoked.is_signature_valid(ca.public_key()):  # type: ignore[arg-type]
                return f"{self.path.name} is not signed by the CA: the last good list counts"
        except FileNotFoundError:
            return f"{self.path.name} is missing: nobody counts as revoked"
        except (OSError, ValueError):
            return f"{self.path.name} is damaged: the last good list counts"
        if revoked.last_update_utc < self._signed_at:
            return f"{self.path.name} is older than the list before it, which counts"
        self._signed_at = revoked.last_update_utc
        self._serials = frozenset(entry.serial_number for entry in revoked)
        return ""


def stamp_of(path: Path) -> tuple[int, int]:
    """Of a file that is only ever replaced: its inode changes even within one clock tick."""
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return status.st_ino, status.st_mtime_ns
