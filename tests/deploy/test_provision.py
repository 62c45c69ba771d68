"""Certificates: names and roles inside, private keys private, renewal and revocation."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from harness import content

from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.provision import Authority, provision
from sdfeel.errors import InputError


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = parse_deployment(content((1, 1)), tmp_path)
    provision(made, hours=2)
    return made


def certificate(deployment: Deployment, role: str, name: str) -> x509.Certificate:
    path = deployment.path(deployment.security.folder) / role / f"{name}.pem"
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_name_and_role_stand_in_the_certificate(deployment: Deployment) -> None:
    names = (
        certificate(deployment, "edge", "a")
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["sdfeel://edge/a"]
    assert names.get_values_for_type(x509.DNSName) == ["a.edge.sdfeel"]
    usage = (
        certificate(deployment, "client", "c0")
        .extensions.get_extension_for_class(x509.ExtendedKeyUsage)
        .value
    )
    assert x509.ExtendedKeyUsageOID.SERVER_AUTH not in usage, "a client cannot pose as an edge"


def test_certificates_are_short_lived(deployment: Deployment) -> None:
    found = certificate(deployment, "client", "c0")
    lifetime = found.not_valid_after_utc - found.not_valid_before_utc
    assert lifetime.total_seconds() <= 2 * 3600 + 600


def test_private_keys_have_mode_600(deployment: Deployment) -> None:
    folder = deployment.path(deployment.security.folder)
    private = [
        path for path in folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()
    ]
    assert len(private) == 1 + 2 + 2 + 1
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in private)


def test_a_key_that_others_can_read_is_refused(deployment: Deployment) -> None:
    path = deployment.path(deployment.security.folder) / "client" / "c0.pem"
    path.chmod(0o644)
    with pytest.raises(InputError, match="mode 600"):
        Credentials(deployment, "client", "c0")


def test_a_missing_certificate_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sdfeel provision"):
        Credentials(parse_deployment(content((1,)), tmp_path), "edge", "a")


def test_the_ca_is_never_overwritten(deployment: Deployment) -> None:
    with pytest.raises(InputError, match="already"):
        Authority.create(deployment.path(deployment.security.folder), "test")
    before = certificate(deployment, "edge", "a").serial_number
    assert provision(deployment, only="a") == ["edge/a"]
    assert certificate(deployment, "edge", "a").serial_number != before
    with pytest.raises(InputError, match="not in the deployment"):
        provision(deployment, only="nobody")


def test_revocation_is_read_again_and_only_from_the_ca(
    deployment: Deployment, tmp_path: Path
) -> None:
    credentials = Credentials(deployment, "edge", "a")
    serial = certificate(deployment, "client", "c0").serial_number
    assert not credentials.is_revoked(serial)
    folder = deployment.path(deployment.security.folder)
    Authority(folder).revoke([("client", "c0")])
    assert credentials.is_revoked(serial)
    Authority(folder).revoke([("client", "c1")])
    assert credentials.is_revoked(serial), "earlier revocations stay"
    forged = Authority.create(tmp_path / "other", "test")
    (folder / "revoked.pem").write_bytes((forged.folder / "revoked.pem").read_bytes())
    assert credentials.is_revoked(serial), "a list that the CA did not sign is no list"


def test_revoking_somebody_unknown_is_an_error(deployment: Deployment) -> None:
    with pytest.raises(InputError, match="no certificate"):
        Authority(deployment.path(deployment.security.folder)).revoke([("client", "c9")])
