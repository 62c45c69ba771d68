"""Certificates over their whole life: issued, renewed, revoked, about to end, ended, and stolen."""

from __future__ import annotations

import asyncio
import datetime
import stat
from pathlib import Path

import pytest
import toy
import typer
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from ended import issue_ended
from harness import World, as_toml, content, deploy
from typer.testing import CliRunner

from sdfeel.cli import deploy as commands
from sdfeel.cli.provision import app as provision_app
from sdfeel.deploy.config import Deployment, parse_deployment
from sdfeel.deploy.facts.facts import EdgeUnreachable
from sdfeel.deploy.facts.logs import Log
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.operate.status import ask
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust import authority as authorities
from sdfeel.deploy.trust import lifetime as lifetimes
from sdfeel.deploy.trust.identity import Credentials, Identity
from sdfeel.deploy.trust.lifetime import Lifetime
from sdfeel.deploy.trust.provision import Authority, provision
from sdfeel.errors import InputError


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made = parse_deployment(content((1, 1)), tmp_path)
    provision(made, hours=2)
    return made


def folder(deployment: Deployment) -> Path:
    return deployment.path(deployment.security.folder)


def certificate(deployment: Deployment, role: str, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder(deployment) / role / f"{name}.pem").read_bytes())


def hours(made: x509.Certificate) -> float:
    span = made.not_valid_after_utc - made.not_valid_before_utc - authorities.SKEW
    return round(span.total_seconds() / 3600, 2)


def app(*names: str) -> typer.Typer:
    made = typer.Typer()
    made.add_typer(provision_app, name="provision")
    for name in names or ("status",):
        made.command()(getattr(commands, name))
    return made


def call(*arguments: str | Path):
    return CliRunner().invoke(app(), [str(part) for part in arguments])


# Revocation.


def test_revoking_after_a_renewal_revokes_the_stolen_one_too(deployment: Deployment) -> None:
    stolen = certificate(deployment, "client", "c0").serial_number
    provision(deployment, only="c0")
    provision(deployment, only="c0")
    newest = certificate(deployment, "client", "c0").serial_number
    Authority(folder(deployment)).revoke([("client", "c0")])
    edge = Credentials(deployment, "edge", "a")
    assert edge.is_revoked(stolen)
    assert edge.is_revoked(newest)
    assert not edge.is_revoked(certificate(deployment, "client", "c1").serial_number)


def test_a_ca_from_before_the_list_of_serials_still_revokes(deployment: Deployment) -> None:
    (folder(deployment) / "issued.jsonl").unlink()
    serial = certificate(deployment, "client", "c0").serial_number
    Authority(folder(deployment)).revoke([("client", "c0")])
    assert Credentials(deployment, "edge", "a").is_revoked(serial)


def test_a_revoked_node_gets_no_new_certificate_by_the_way(deployment: Deployment) -> None:
    Authority(folder(deployment)).revoke([("client", "c0")])
    assert "client/c0" not in provision(deployment)
    assert provision(deployment, only="c0") == ["client/c0"], "but if it is asked for"
    serial = certificate(deployment, "client", "c0").serial_number
    assert not Credentials(deployment, "edge", "a").is_revoked(serial)
    assert "client/c0" in provision(deployment)


def test_a_missing_old_or_damaged_list_is_told_and_the_last_one_counts(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(deployment) / "revoked.pem"
    old = path.read_bytes()
    real = authorities._now
    later = datetime.timedelta(minutes=10)
    monkeypatch.setattr(authorities, "_now", lambda: real() + later)
    Authority(folder(deployment)).revoke([("client", "c0")])
    serial = certificate(deployment, "client", "c0").serial_number
    edge = Credentials(deployment, "edge", "a")
    log = Log("a", None)
    watch = Lifetime(edge, log.add)
    assert watch.look() == []
    for name, harm in {
        "older than the list before": lambda: path.write_bytes(old),
        "damaged": lambda: path.write_bytes(b"nonsense"),
        "missing": path.unlink,
    }.items():
        harm()
        assert name in watch.look()[0].text
        assert edge.is_revoked(serial), "once revoked, always revoked"
    assert [line["event"] for line in log.recent] == ["revocation-list"] * 3
    watch.look()
    assert len(log.recent) == 3, "only news is told"


def test_a_list_that_was_not_copied_with_the_certificate_is_told(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder(deployment) / "revoked.pem").read_bytes()
    real = authorities._now
    monkeypatch.setattr(authorities, "_now", lambda: real() + datetime.timedelta(minutes=10))
    provision(deployment, only="a")
    watch = Lifetime(Credentials(deployment, "edge", "a"), Log("a", None).add)
    assert watch.look() == []
    (folder(deployment) / "revoked.pem").write_bytes(before)
    again = Lifetime(Credentials(deployment, "edge", "a"), Log("a", None).add)
    assert "older than this node's certificate" in again.look()[0].text


# An edge whose certificate is revoked.


def test_an_edge_proves_that_it_holds_its_certificate(deployment: Deployment) -> None:
    edge, client = (Credentials(deployment, *who) for who in (("edge", "a"), ("client", "c0")))
    nonce = client.challenge()
    assert len(nonce) == 32
    assert nonce != client.challenge()
    proof = v1.Hello(**edge.prove(nonce, Identity("client", "c0")))
    assert client.check_edge("a", proof, nonce) == Identity(
        "edge",
        "a",
        certificate(deployment, "edge", "a").serial_number,
        certificate(deployment, "edge", "a").not_valid_after_utc,
    )
    for wrong, why in (
        (v1.Hello(), "nothing"),
        (v1.Hello(certificate=proof.certificate), "a certificate is no secret"),
        (v1.Hello(**edge.prove(client.challenge(), Identity("client", "c0"))), "replayed"),
        (v1.Hello(**edge.prove(nonce, Identity("client", "c1"))), "got for somebody else"),
        (
            v1.Hello(**Credentials(deployment, "edge", "b").prove(nonce, Identity("client", "c0"))),
            "of another edge",
        ),
    ):
        with pytest.raises(Refused) as refusal:
            client.check_edge("a", wrong, nonce)
        assert refusal.value.kind in ("proof", "role"), why
    provision(deployment, only="a")
    Authority(folder(deployment)).revoke([("edge", "a")])
    with pytest.raises(Refused, match="revoked"):
        client.check_edge("a", proof, nonce)


def test_another_ca_proves_nothing(deployment: Deployment, tmp_path: Path) -> None:
    client = Credentials(deployment, "client", "c0")
    other = parse_deployment(content((1, 1)), tmp_path / "other")
    provision(other)
    nonce = client.challenge()
    proof = v1.Hello(**Credentials(other, "edge", "a").prove(nonce, Identity("client", "c0")))
    with pytest.raises(Refused, match="prove"):
        client.check_edge("a", proof, nonce)


def test_callers_leave_a_revoked_edge(tmp_path: Path) -> None:
    """Its clients go to their fallback, its neighbours end the link, the operator is told."""
    deployment = deploy(tmp_path, sizes=(1, 1, 1), periods=9999, fallback=True)

    async def run() -> None:
        async with World(deployment) as world:
            slow = {
                c.name: toy.ToyTrainer(n, c.samples, delay=0.02)
                for n, c in enumerate(deployment.clients)
            }
            await world.start_all(slow)
            await world.until(lambda: all(edge.done >= 2 for edge in world.edges.values()))
            Authority(folder(deployment)).revoke([("edge", "b")])
            a, b = world.edges["a"], world.edges["b"]
            await world.until(lambda: not a.links["b"].up and not b.cluster.sessions)
            await world.until(lambda: "c1" in a.cluster.sessions)
            told = {line["kind"] for line in world.events("edge-distrusted", "c1")}
            assert told == {"revoked"}
            failed = world.events("dial-failed", "a")
            assert any("edge/b is revoked" in line["reason"] for line in failed)
            rows = await ask(deployment, timeout=10.0)
            assert "revoked" in rows[1].problem

    asyncio.run(run())


# The CA's key, and lengths.


@pytest.mark.parametrize("hours", ["nan", "inf", "0", "-3", "1e300", "100000"])
def test_strange_lengths_are_refused_before_anything_is_made(tmp_path: Path, hours: str) -> None:
    file = tmp_path / "d.toml"
    file.write_text(as_toml(content((1,))))
    result = call("provision", file, "--hours", hours)
    assert isinstance(result.exception, InputError)
    assert result.exception.field == "hours"
    assert not list(tmp_path.glob("certificates/*/*.pem"))


def test_a_renewal_keeps_the_length(deployment: Deployment) -> None:
    provision(deployment)
    assert hours(certificate(deployment, "client", "c0")) == 2
    provision(deployment, 5, only="c0")
    provision(deployment)
    assert hours(certificate(deployment, "client", "c0")) == 5
    assert hours(certificate(deployment, "client", "c1")) == 2


def test_the_key_of_the_ca_must_be_private(deployment: Deployment) -> None:
    (folder(deployment) / "ca.key").chmod(0o640)
    with pytest.raises(InputError, match=r"ca\.key"):
        provision(deployment)


def test_the_key_of_the_ca_may_have_a_passphrase(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = folder(deployment) / "ca.key"
    file = deployment.folder / "d.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    monkeypatch.delenv("SDFEEL_CA_PASSPHRASE", raising=False)
    assert isinstance(call("provision", file, "--passphrase").exception, InputError)
    monkeypatch.setenv("SDFEEL_CA_PASSPHRASE", "correct horse")
    assert call("provision", file, "--passphrase").exit_code == 0
    assert b"ENCRYPTED" in key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert call("provision", file, "--node", "a").exit_code == 0
    monkeypatch.setenv("SDFEEL_CA_PASSPHRASE", "wrong")
    with pytest.raises(InputError, match="does not open") as problem:
        provision(deployment)
    assert "wrong" not in str(problem.value)
    monkeypatch.delenv("SDFEEL_CA_PASSPHRASE")
    with pytest.raises(InputError, match="SDFEEL_CA_PASSPHRASE"):
        provision(deployment)
    monkeypatch.setenv("SDFEEL_CA_PASSPHRASE", "for a new one")
    fresh = parse_deployment(content((1,)), deployment.folder / "fresh")
    provision(fresh)
    assert b"ENCRYPTED" in (folder(fresh) / "ca.key").read_bytes()


def test_model_without_local_fails_before_anything_is_reissued(deployment: Deployment) -> None:
    file = deployment.folder / "d.toml"
    file.write_text(as_toml(deployment.model_dump(mode="json")))
    before = certificate(deployment, "edge", "a").serial_number
    result = call("provision", file, "--model")
    assert isinstance(result.exception, InputError)
    assert result.exception.field == "local.model"
    assert certificate(deployment, "edge", "a").serial_number == before


def test_model_alone_renews_nobody(deployment: Deployment) -> None:
    table = deployment.model_dump(mode="json")
    table["local"]["model"] = "made_for_this_test:make"
    table["clients"].append({"name": "late", "edge": "a", "samples": 3, "fallbacks": []})
    (deployment.folder / "made_for_this_test.py").write_text(
        "from torch import nn\nmake = lambda: nn.Linear(2, 3)\n"
    )
    file = deployment.folder / "d.toml"
    file.write_text(as_toml(table))
    before = certificate(deployment, "edge", "a")
    result = call("provision", file, "--model")
    assert result.exit_code == 0, result.exception
    assert (deployment.folder / "initial.safetensors").exists()
    assert certificate(deployment, "edge", "a") == before
    assert certificate(deployment, "client", "late"), "who had none gets one"


def test_where_a_module_is_looked_for_is_said(deployment: Deployment) -> None:
    file = deployment.folder / "d.toml"
    table = deployment.model_dump(mode="json")
    table["local"]["model"] = "nowhere:make"
    file.write_text(as_toml(table))
    result = call("provision", file, "--model")
    assert "PYTHONPATH" in str(result.exception)
    assert str(deployment.folder) in str(result.exception)


# Files that are damaged, and names that are none.


def with_passphrase(pem: bytes) -> bytes:
    """A node's file whose key cannot be opened by the node."""
    key = serialization.load_pem_private_key(pem, None)
    cipher = serialization.BestAvailableEncryption(b"secret")
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, cipher) + pem[pem.index(CERT) :]


CERT = b"-----BEGIN CERTIFICATE-----"
DAMAGE = {
    "empty": lambda pem: b"",
    "half": lambda pem: pem[: len(pem) // 2],
    "nonsense": lambda pem: CERT + b"\nnonsense\n-----END CERTIFICATE-----\n",
    "binary": lambda pem: bytes(range(256)),
    "locked": with_passphrase,
    "without-key": lambda pem: pem[pem.index(CERT) :],
    "twisted": lambda pem: pem.replace(b"M", b"N", 9),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_of_a_node_is_named(deployment: Deployment, how: str) -> None:
    """By the node that has it; the CA renews it, and revokes what it has issued, all the same."""
    path = folder(deployment) / "edge" / "a.pem"
    path.write_bytes(DAMAGE[how](path.read_bytes()))
    with pytest.raises(InputError, match=r"a\.pem"):
        Credentials(deployment, "edge", "a")
    Authority(folder(deployment)).revoke([("edge", "a")])
    assert "edge/b" in provision(deployment)
    provision(deployment, only="a")
    Credentials(deployment, "edge", "a")


def test_a_damaged_file_that_is_noted_nowhere_is_named(deployment: Deployment) -> None:
    """Of a CA from before the list of serials: what it was for would never be revoked."""
    (folder(deployment) / "issued.jsonl").unlink()
    (folder(deployment) / "client" / "c0.pem").write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"c0\.pem"):
        Authority(folder(deployment)).revoke([("client", "c0")])


@pytest.mark.parametrize("content", [b"", b"nonsense", b"-----BEGIN X509 CRL-----\nAAAA\n"])
def test_a_damaged_revocation_list_is_named_before_anything_is_issued(
    deployment: Deployment, content: bytes
) -> None:
    """Signed anew it would revoke nobody."""
    (folder(deployment) / "revoked.pem").write_bytes(content)
    before = certificate(deployment, "edge", "a").serial_number
    for act in (
        lambda: provision(deployment),
        lambda: Authority(folder(deployment)).issue("edge", "a"),
        lambda: Authority(folder(deployment)).revoke([("edge", "a")]),
    ):
        with pytest.raises(InputError, match=r"revoked\.pem"):
            act()
    assert certificate(deployment, "edge", "a").serial_number == before


@pytest.mark.parametrize(
    "name", ["../../pwn", "a/b", "", ".", "..", "a\nb", "a\0", ".hidden", "x" * 300, 7, None]
)
def test_a_certificate_is_for_a_name_not_for_a_path(deployment: Deployment, name: object) -> None:
    before = sorted(folder(deployment).parent.rglob("*"))
    with pytest.raises(InputError, match="name"):
        Authority(folder(deployment)).issue("edge", name)
    assert sorted(folder(deployment).parent.rglob("*")) == before


@pytest.mark.parametrize("hours", [0, -1, 0.99, float("nan"), float("inf"), "24", None, True])
def test_a_certificate_is_for_an_hour_at_least(deployment: Deployment, hours: object) -> None:
    with pytest.raises(InputError, match="hours"):
        Authority(folder(deployment)).issue("edge", "a", hours)


@pytest.mark.parametrize("hours", ["24", True, [1], 10**400])
def test_provision_takes_numbers_of_hours(deployment: Deployment, hours: object) -> None:
    with pytest.raises(InputError, match="hours"):
        provision(deployment, hours)


# Before the end, and after it.


def test_the_end_is_told_before_it_comes(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent for three quarters of its life, then at each half of what is left, then the end."""
    metrics, log = Metrics(), Log("a", None)
    watch = Lifetime(Credentials(deployment, "edge", "a"), log.add, metrics)
    begin = datetime.datetime.now(datetime.UTC)
    for minutes in range(0, 130, 2):
        now = begin + datetime.timedelta(minutes=minutes)
        monkeypatch.setattr(lifetimes, "_now", lambda now=now: now)
        warnings = watch.look()
        assert bool(warnings) == (minutes >= 88 + 2), minutes
        days = metrics.value("sdfeel_certificate_days")
        assert days == pytest.approx((120 - minutes) / 1440, abs=0.001)
    events = [line["event"] for line in log.recent]
    assert events[-1] == "certificate-expired"
    assert events.count("certificate-expired") == 1
    assert 3 <= events.count("certificate-ends") <= 6
    provision(deployment, 100, only="a")
    assert watch.look() == []


def test_a_node_whose_certificate_has_ended_says_so_and_does_not_dial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=3)
    issue_ended(folder(deployment), "client", "c0")
    looked: list[bool] = []
    real = Lifetime.look
    monkeypatch.setattr(Lifetime, "look", lambda self: looked.append(True) or real(self))

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            client = world.start_client("c0")
            await world.until(lambda: bool(world.events("certificate-expired", "c0")))
            attempts = len(looked)
            await world.until(lambda: len(looked) > attempts + 10)
            assert {line["event"] for line in client.log.recent} == {"certificate-expired"}
            assert len(client.log.recent) == 1
            provision(deployment, 1, only="c0")
            await world.finish()
            assert client.accepted == [1, 2, 3]

    asyncio.run(run())


def test_an_edge_whose_certificate_has_ended_names_itself(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1, 1), periods=9999)
    issue_ended(folder(deployment), "edge", "a")

    async def run() -> None:
        async with World(deployment) as world:
            a = await world.start_edge("a")
            await world.start_edge("b")
            await world.until(lambda: bool(world.events("certificate-expired", "a")))
            await world.until(lambda: bool(world.events("dial-failed", "a")))
            assert "own certificate" in world.events("dial-failed", "a")[0]["reason"]
            assert a.metrics.value("sdfeel_certificate_days") < 0
            assert any("ended on" in warning.text for warning in a.warnings)
            provision(deployment, 1, only="a")
            await world.until(lambda: a.links["b"].up)
            assert a.warnings == []

    asyncio.run(run())


def test_what_repeats_is_told_at_each_doubling() -> None:
    log = Log("c0", None)
    for _ in range(1000):
        log.add(EdgeUnreachable(edge="a", reason="Socket closed"))
        log.add(EdgeUnreachable(edge="b", reason="Socket closed"))
    assert len(log.recent) == 20
    assert log.recent[-1]["times"] == 512


# Two processes with one name.


def test_two_processes_with_one_name_do_not_push_each_other_out(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=60)

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            trainer = toy.ToyTrainer(0, deployment.clients[0].samples, delay=0.02)
            first = world.start_client("c0", trainer)
            await world.until(lambda: bool(first.accepted))
            world.tasks["first"] = world.tasks.pop("c0")
            second = world.start_client("c0", trainer)
            await world.until(lambda: bool(second.log.recent))
            await asyncio.wait([world.tasks["first"]])
            (told, *_) = [line for line in second.log.recent if line["event"] == "edge-refused"]
            assert "another process with the name 'c0' is attached" in told["reason"]
            assert world.edges["a"].metrics.value("sdfeel_refused_total", kind="twice") >= 1
            assert {e["kind"] for e in world.events("peer-refused", "a")} == {"twice"}
            assert not world.events("client-replaced", "a"), "neither pushed the other out"
            assert sorted([*first.accepted, *second.accepted]) == list(range(1, 61))

    asyncio.run(run())


# Status and programs.


def test_a_warning_is_in_the_status(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,), periods=5)
    (folder(deployment) / "revoked.pem").unlink()

    async def run() -> None:
        async with World(deployment) as world:
            await world.start_edge("a")
            (row,) = await ask(deployment, timeout=10.0)
            assert "missing" in row.warnings[0].text
            assert 0 < row.certificate_hours <= 24

    asyncio.run(run())
