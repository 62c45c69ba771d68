"""What operators did, in `audit.log` beside the deployment file: one JSON object a line.

    time       in UTC
    user       the account that called the command, and `sudo` if that was another one
    host       the machine
    action     one of ACTIONS
    ...        what it was done to

Lines are only ever added, by commands on this machine. What an operator elsewhere has taken stands
in the log of the edge that gave it (`exported`, with the certificate).
"""

from __future__ import annotations

import datetime
import json
import os
import pwd
import socket
from typing import Any

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.trust.provision import provision

__all__ = ["ACTIONS", "AUDIT", "provision_and_record", "record"]

AUDIT = "audit.log"
ACTIONS = {
    "authority-created": "the CA was made: `nodes` got certificates",
    "issued": "first certificates for `nodes`, for `hours` (null: 24)",
    "renewed": "new certificates for `nodes`, for `hours` (null: as long as the last one)",
    "revoked": "the certificates of `nodes`",
    "key-protected": "the key of the CA has a passphrase from now on",
    "first-model": "the model that training begins with, in `path`",
    "exported": "the mean of the models of `periods` (edge to period), in `path`",
    "rolled-back": "`periods` (edge to period) that training goes on from",
}


def record(deployment: Deployment, action: str, **about: Any) -> str:
    """Add a line; return why it could not be written, or "".

    A command that has done its work does not fail for want of a line about it.
    """
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    who = {"user": _account(), "host": socket.gethostname()}
    if os.environ.get("SUDO_USER"):
        who["sudo"] = os.environ["SUDO_USER"]
    line = json.dumps({"time": now, **who, "action": action, **about}, default=str) + "\n"
    path = deployment.folder / AUDIT
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())  # at once: lines of two commands do not mix
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        return f"{path} cannot be written ({problem.strerror}): {line.strip()}"
    return ""


def provision_and_record(
    deployment: Deployment, hours: float | None = None, **options: Any
) -> tuple[list[str], str]:
    """Make certificates as `provision` does, and add what was done.

    Returns:
        Nodes that got a certificate, as ROLE/NAME, and why a line could not be written, or "".
    """
    folder = deployment.path(deployment.security.folder)
    is_new = not (folder / "ca.key").exists()
    had = {f"{path.parent.name}/{path.stem}" for path in folder.glob("*/*.pem")}
    nodes = provision(deployment, hours, **options)
    if is_new:
        return nodes, record(deployment, "authority-created", nodes=nodes, hours=hours)
    problems = []
    for action, is_known in (("issued", False), ("renewed", True)):
        some = [node for node in nodes if (node in had) is is_known]
        problems += [record(deployment, action, nodes=some, hours=hours)] if some else []
    return nodes, "\n".join(filter(None, problems))


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # in a container, say
        return str(os.getuid())
