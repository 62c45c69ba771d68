"""Certificates that have ended, as time makes them: nobody issues one."""

from __future__ import annotations

import datetime
from pathlib import Path
from unittest import mock

from sdfeel.deploy.trust import authority as authorities
from sdfeel.deploy.trust.authority import Authority, Issued
from sdfeel.files import write_atomically


def issue_ended(folder: Path, role: str, name: str) -> None:
    """One that was made two hours ago for one hour, noted as any other."""
    authority, then = Authority(folder), authorities._now() - datetime.timedelta(hours=2)
    with mock.patch.object(authorities, "_now", return_value=then):
        made = authority._make(role, name, 1.0)
    authority._note([Issued(role, name, made.serial, 1.0, made.until)])
    (folder / role).mkdir(exist_ok=True)
    write_atomically(folder / role / f"{name}.pem", made.pem, 0o600)
    authority.sign_list()
