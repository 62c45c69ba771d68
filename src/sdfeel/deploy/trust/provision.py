"""Certificates for a whole deployment: a CA of its own, and a short-lived one for every node.

A node's name and role stand in its certificate, as the URI `sdfeel://edge/NAME`. Whoever dials
checks the host name `NAME.edge.sdfeel`, so a node is who it is wherever it runs. Certificates are
renewed by writing new files in the old places: programs read them again by themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sdfeel.deploy.config import Deployment
from sdfeel.deploy.trust.authority import ROLES, SHORTEST, Authority, Issued, check_hours
from sdfeel.errors import InputError

__all__ = ["OPERATOR", "ROLES", "Authority", "passphrase", "provision"]

OPERATOR = "operator"
HOURS = 24.0


def passphrase() -> bytes | None:
    """Of the CA's key, from the environment."""
    return os.environ.get("SDFEEL_CA_PASSPHRASE", "").encode() or None


def provision(
    deployment: Deployment,
    hours: float | None = None,
    only: str | None = None,
    missing: bool = False,
    key: bytes | None = None,
) -> list[str]:
    """Makes the CA if there is none and certificates for the nodes; who got one, as ROLE/NAME.

    hours    how long they are valid; as long as a node's last one was if None
    only     this node alone, also if it was revoked; all others stay revoked
    missing  only for nodes that have none yet
    key      passphrase of the CA's key (default: SDFEEL_CA_PASSPHRASE)
    """
    if hours is not None:
        check_hours(hours)
    nodes = _nodes(deployment, only)
    folder = deployment.path(deployment.security.folder)
    secret = key or passphrase()
    exists = (folder / "ca.key").exists()
    if exists:
        authority = Authority(folder, secret)
    else:
        authority = Authority.create(folder, deployment.name, secret)
    last = {(certificate.role, certificate.name): certificate for certificate in authority.issued()}
    revoked = authority.revoked()
    if only is None:
        nodes = [node for node in nodes if not _is_out(last.get(node), revoked)]
    if missing:
        nodes = [node for node in nodes if not (folder / node[0] / f"{node[1]}.pem").exists()]
    lengths = {
        node: max(certificate.hours, SHORTEST) if certificate.hours > 0 else HOURS
        for node, certificate in last.items()
    }
    authority.issue_all([(*node, hours or lengths.get(node, HOURS)) for node in nodes])
    return [f"{role}/{name}" for role, name in nodes]


def _nodes(deployment: Deployment, only: str | None) -> list[tuple[str, str]]:
    nodes = [("edge", edge.name) for edge in deployment.edges]
    nodes += [("client", client.name) for client in deployment.clients]
    nodes.append(("operator", OPERATOR))
    if only is not None:
        nodes = [node for node in nodes if node[1] == only]
        if not nodes:
            raise InputError("node", only, "is not in the deployment file")
    return nodes


def _is_out(last: Issued | None, revoked: Mapping[int, object]) -> bool:
    """A revoked node gets no new certificate by the way."""
    return last is not None and last.serial in revoked
