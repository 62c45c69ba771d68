"""Certificates: names and roles inside, private keys private, renewal and revocation."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from harness import as_toml, content
from typer.testing import CliRunner, Result

from sdfeel.cli import app
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.operate.audit import ACTIONS, record
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


# By command.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "d.toml"
    path.write_text(as_toml(content((1, 1))))
    return path


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["provision", *map(str, words)])


def serials(file: Path) -> dict[str, int]:
    found = sorted((file.parent / "certificates").glob("*/*.pem"))
    return {
        f"{path.parent.name}/{path.stem}": x509.load_pem_x509_certificate(
            path.read_bytes()
        ).serial_number
        for path in found
    }


def test_every_verb_does_one_thing(file: Path) -> None:
    assert "5 certificates in" in call("init", file, "--hours", "2").output
    first = serials(file)
    assert list(first) == ["client/c0", "client/c1", "edge/a", "edge/b", "operator/operator"]
    again = call("init", file)
    assert isinstance(again.exception, InputError)
    assert f"`sdfeel provision renew {file}`" in str(again.exception)
    assert serials(file) == first
    call("node", file, "c1")
    assert {name for name, serial in serials(file).items() if serial != first[name]} == {
        "client/c1"
    }
    assert call("revoke", file, "edge/b", "client/c0").exit_code == 0
    before = serials(file)
    call("renew", file)
    same = {name for name, serial in serials(file).items() if serial == before[name]}
    assert same == {"edge/b", "client/c0"}, "the revoked ones stay so"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["{file}"], "init {file}"),
        (["{file}", "--hours", "2", "--passphrase"], "init {file}"),
        (["--hours", "2", "{file}"], "init {file}"),
    ],
)
def test_the_old_form_begins_as_it_did(
    file: Path, old: list[str], new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDFEEL_CA_PASSPHRASE", "x")
    result = call(*(word.format(file=file) for word in old))
    assert result.exit_code == 0, result.exception
    assert f"`sdfeel provision {new.format(file=file)}`" in result.stderr
    assert len(serials(file)) == 5


@pytest.mark.parametrize(
    ("flags", "new", "changed"),
    [
        ([], "renew {file}", 5),
        (["--hours", "3"], "renew {file}", 5),
        (["--node", "a"], "node {file} a", 1),
        (["--revoke", "edge/a", "--revoke", "client/c0"], "revoke {file} edge/a client/c0", 0),
        (["--passphrase"], "protect {file}", 5),
    ],
)
def test_the_old_form_does_what_it_did_and_names_the_new_one(
    file: Path, flags: list[str], new: str, changed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("init", file)
    first = serials(file)
    monkeypatch.setenv("SDFEEL_CA_PASSPHRASE", "x")
    result = call(file, *flags)
    assert result.exit_code == 0, result.exception
    assert f"`sdfeel provision {new.format(file=file)}`" in result.stderr
    assert len(set(serials(file).items()) - set(first.items())) == changed
    assert (b"ENCRYPTED" in (file.parent / "certificates" / "ca.key").read_bytes()) == (
        "--passphrase" in flags
    )


def test_a_misspelt_verb_is_no_file() -> None:
    result = call("renw", "d.toml")
    assert result.exit_code == 2
    assert "No such command 'renw'" in result.output


def test_what_operators_did_stands_in_the_audit_log(file: Path) -> None:
    call("init", file, "--hours", "2")
    call("node", file, "a")
    call("revoke", file, "client/c0")
    late = as_toml({"clients": [{"name": "late", "edge": "a", "samples": 3, "fallbacks": []}]})
    file.write_text(file.read_text() + late)
    call("renew", file)
    path = file.parent / "audit.log"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["action"] for line in lines] == [
        *("authority-created", "renewed", "revoked"),
        *("issued", "renewed"),
    ]
    assert len(lines[0]["nodes"]) == 5
    assert (lines[1]["nodes"], lines[2]["nodes"]) == (["edge/a"], ["client/c0"])
    assert lines[3]["nodes"] == ["client/late"]
    assert lines[4]["nodes"] == ["edge/a", "edge/b", "client/c1", "operator/operator"]
    assert all({"time", "user", "host"} <= set(line) for line in lines)
    assert {line["action"] for line in lines} <= set(ACTIONS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_command_does_not_fail_for_want_of_its_line(deployment: Deployment) -> None:
    (deployment.folder / "audit.log").mkdir()
    problem = record(deployment, "revoked", nodes=["client/c0"])
    assert "audit.log cannot be written" in problem
    assert '"nodes": ["client/c0"]' in problem
