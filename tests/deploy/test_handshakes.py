"""Failed handshakes are counted by reason; everything else on standard error is left as it was."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from unittest import mock

import pytest
from ended import issue_ended
from harness import Process, World, deploy, free_ports
from hypothesis import given
from hypothesis import strategies as st
from identity_faults import expired, without_certificate, without_tls

from sdfeel.deploy.protocol import v1
from sdfeel.deploy.trust import authority
from sdfeel.deploy.trust.authority import Authority
from sdfeel.deploy.trust.handshake_filter import HandshakeFilter, classify
from sdfeel.deploy.trust.handshakes import explain
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.wire.grpc_transport import GrpcTransport
from sdfeel.deploy.wire.transport import Call, Stream, StreamLost

BORING = "error:1000007d:SSL routines:OPENSSL_internal:"
FAILED = (
    "I1116 03:14:49.961315   30592 ssl_transport_security.cc:2563] Handshake failed with error "
    f"SSL_ERROR_SSL: {BORING}"
)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "expired"),
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", "not-yet-valid"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "unknown-ca"),
        ("BAD_SIGNATURE: certificate signature failure", "unknown-ca"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid certificate verification", "no-certificate"),
        ("WRONG_VERSION_NUMBER: Invalid certificate verification context", "not-tls"),
        ("HTTP_REQUEST: Invalid certificate verification context", "not-tls"),
        ("NO_SHARED_CIPHER: Invalid certificate verification context", "other"),
        ("Handshake read failed (Socket closed)", "caller-left"),
    ],
)
def test_reasons(said: str, reason: str) -> None:
    assert classify(BORING + said) == reason


@pytest.mark.parametrize(
    ("said", "is_foreign", "means"),
    [
        (f"Tls handshake failed: {BORING}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK",
         False, "has expired by the clock of this machine"),
        (f"Tls handshake failed: {BORING}CERTIFICATE_VERIFY_FAILED: certificate is not yet valid",
         False, "which is probably behind"),
        (f"Tls handshake failed: {BORING}BAD_SIGNATURE: certificate signature failure", False,
         "not of the CA in this machine's ca.pem"),
        ("failed to connect to all addresses; last error: UNAVAILABLE: x: Socket closed", False,
         "it refuses this node's certificate"),
        ("failed to connect to all addresses; last error: UNKNOWN: Connection reset by peer", True,
         "this node's own certificate is not of the CA"),
    ],
)  # fmt: skip
def test_a_caller_says_what_a_failure_probably_means(
    said: str, is_foreign: bool, means: str
) -> None:
    found = explain(said, is_foreign)
    assert means in found
    assert said in found, "and what gRPC says"


@pytest.mark.parametrize("said", ["Socket closed", "Connection refused", "", "Too many pings"])
def test_what_is_no_handshake_is_left_as_it_is(said: str) -> None:
    assert explain(said, False) == said


STAMP = "I1116 03:14:49.961315   30592 "
TRACE = [
    "trace.cc:91] gRPC Tracers: handshaker",
    "handshaker.cc:80] handshake_manager 0x7: adding handshaker security [0x7] at index 1",
    "handshaker.cc:155] CallNextHandshakerLocked: error=OK shutdown=false index=0, args={...}",
    "handshaker.cc:155] CallNextHandshakerLocked: error=UNAVAILABLE: Connection refused",
    "channel_trace.h:396] handshake manager 0x7:  calling handshaker security at index 1",
]


def test_of_traced_handshakes_only_the_failed_reading_is_told() -> None:
    failed = "handshaker.cc:155] CallNextHandshakerLocked: error=UNAVAILABLE: Handshake read failed"
    other = ["trace.cc:91] gRPC Tracers: http", "channel_trace.h:396] something else", "handshaker"]
    lines = [STAMP + line for line in [*TRACE, failed + " (Socket closed)", *other]]
    passed, told = through_filter(["".join(line + "\n" for line in lines).encode()])
    assert passed == "".join(STAMP + line + "\n" for line in other).encode()
    (line,) = told
    assert (line["reason"], line["count"]) == ("caller-left", 1)


def test_the_trace_is_asked_for_before_grpc_is_there_and_not_over_anothers() -> None:
    ask = (
        "import os, sys; from sdfeel.deploy.trust.handshakes import trace_handshakes as trace; "
        "trace(); print('grpc' in sys.modules, os.environ['GRPC_TRACE'])"
    )
    for before, after in (("", "handshaker"), ("http", "http")):
        environment = {**os.environ, **({"GRPC_TRACE": before} if before else {})}
        command = [sys.executable, "-c", ask]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"False {after}\n"


def through_filter(pieces: list[bytes]) -> tuple[bytes, list[dict[str, object]]]:
    """What comes out behind, and what is reported."""
    pipes = [os.pipe() for _ in range(3)]
    (source, sink), (behind, through), (told, reports) = pipes
    picking = threading.Thread(target=HandshakeFilter(source, through, reports, idle=60).run)
    picking.start()
    for piece in pieces:
        os.write(sink, piece)
    os.close(sink)
    picking.join()
    os.close(through)
    os.close(reports)
    with os.fdopen(behind, "rb") as rest, os.fdopen(told, "rb") as lines:
        found = rest.read(), [json.loads(line) for line in lines]
    os.close(source)
    return found


@given(
    lines=st.lists(st.binary(max_size=30).filter(lambda data: b"\n" not in data), max_size=6),
    refused=st.integers(0, 5),
    cuts=st.lists(st.integers(0, 1500), max_size=5),
    end=st.binary(max_size=9),
)
def test_other_lines_pass_untouched_however_they_are_cut(
    lines: list[bytes], refused: int, cuts: list[int], end: bytes
) -> None:
    handshake = (FAILED + "CERTIFICATE_VERIFY_FAILED: certificate has expired\n").encode()
    other = b"".join(line + b"\n" for line in lines)
    text = handshake * refused + other + end
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    passed, told = through_filter([text[a:b] for a, b in itertools.pairwise(places)])
    assert passed == other + end
    assert sum(int(str(line["count"])) for line in told) == refused
    assert {line["reason"] for line in told} <= {"expired"}


def test_a_flood_is_counted_and_told_in_few_lines() -> None:
    _, told = through_filter([(FAILED + "HTTP_REQUEST: x\n").encode() * 200] * 10)
    assert sum(int(str(line["count"])) for line in told) == 2000
    assert len(told) < 10


def test_nobody_listens_to_the_reports() -> None:
    """The node is gone: even handshakes are passed on rather than lost."""
    (source, sink), (behind, through), (told, reports) = (os.pipe() for _ in range(3))
    os.close(told)
    line = (FAILED + "HTTP_REQUEST: x\n").encode()
    picking = threading.Thread(target=HandshakeFilter(source, through, reports).run)
    picking.start()
    os.write(sink, line)
    picking.join(0.3)  # it notices
    os.write(sink, line)
    os.close(sink)
    picking.join()
    assert os.read(behind, 4096) == line
    for descriptor in (source, behind, through, reports):
        os.close(descriptor)


NODE = """
import asyncio, os, signal, sys
from sdfeel.deploy.trust.handshakes import Handshakes

async def main():
    handshakes = Handshakes(lambda *found: print(*found, flush=True))
    handshakes.start()
    try:
        {act}
    finally:
        handshakes.stop()

asyncio.run(main())
"""


def node(act: str) -> subprocess.CompletedProcess[str]:
    program = NODE.format(act=act)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("act", "status", "said"),
    [
        ("raise ValueError('bad luck')", 1, "ValueError: bad luck"),
        ("os.write(2, b'last words'); os.abort()", -signal.SIGABRT, "last words"),
        ("os.write(2, b'last words'); os.kill(os.getpid(), 9)", -signal.SIGKILL, "last words"),
        ("os.write(2, b'last words'); sys.exit(3)", 3, "last words"),
    ],
    ids=["traceback", "abort", "kill", "exit"],
)
def test_last_words_arrive(act: str, status: int, said: str) -> None:
    found = node(act)
    assert found.returncode == status
    assert said in found.stderr


def test_the_node_is_told_and_its_standard_error_is_not() -> None:
    line = FAILED + "HTTP_REQUEST: x\\n"
    found = node(f"os.write(2, b'{line}before\\n'); await asyncio.sleep(0.3)")
    assert found.stdout.startswith("not-tls 1 SSL_ERROR_SSL")
    assert found.stderr == "before\n"


def test_without_its_filter_a_node_goes_on() -> None:
    kill = "handshakes._filter.kill(); await asyncio.sleep(0.5); "
    act = kill + "os.write(2, b'directly'); print('ran')"
    found = node(act)
    assert (found.returncode, found.stdout, found.stderr) == (0, "ran\n", "directly")


def test_without_a_standard_error_a_node_goes_on(tmp_path: Path) -> None:
    """Descriptor 2 is then the first free one, and belongs to somebody else."""
    program = tmp_path / "node.py"
    program.write_text(NODE.format(act="print('ran')"))
    found = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" "$1" 2>&-', sys.executable, str(program)],
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, b"ran\n")


def test_refused_handshakes_are_in_the_metrics_of_a_real_edge(tmp_path: Path) -> None:
    deployment = deploy(tmp_path, sizes=(1,))
    (port,) = free_ports(1)
    edge = deployment.edges[0].model_copy(update={"metrics": f"127.0.0.1:{port}"})
    deployment = deployment.model_copy(update={"edges": [edge]})

    def metrics() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()

    async def run() -> str:
        async with World(deployment) as world:
            node = Process(world, "edge", "a")
            await world.until(lambda: node.saw("listening"))
            for knock in (expired, without_certificate, without_tls):
                await knock(world)
            count = 'sdfeel_handshakes_refused_total{{reason="{}"}} '.format
            reasons = ("expired", "no-certificate", "not-tls")
            wanted = [count(reason) for reason in reasons]
            text = ""
            for _ in range(100):
                text = await asyncio.to_thread(metrics)
                if all(name in text for name in wanted):
                    break
                await asyncio.sleep(0.05)
            assert all(name in text for name in wanted), text
            return text

    asyncio.run(run())


SHIFT = datetime.timedelta(hours=2)


async def greet(stream: Stream) -> None:
    await stream.write(v1.FromClient(hello=v1.Hello()))
    await stream.read()


@pytest.mark.parametrize(
    ("wrong", "at_caller", "at_edge"),
    [
        ("all of another CA", "not of the CA in this machine's ca.pem", "caller-left"),
        ("certificate of another CA", "own certificate is not of the CA", "unknown-ca"),
        ("clock behind", "which is probably behind", "caller-left"),
        ("clock ahead", "has expired by the clock", "caller-left"),
        ("certificate expired", "it refuses this node's certificate", "expired"),
    ],
)
def test_who_is_turned_away_is_named_at_both_ends(
    tmp_path: Path, wrong: str, at_caller: str, at_edge: str
) -> None:
    """Where a clock is wrong the edge's certificate was made as that clock would see it."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    deployment = deploy(tmp_path / "there", sizes=(1,))
    here = deployment.model_copy(update={"folder": tmp_path / "here"})
    certificates = tmp_path / "there" / "certificates"
    ours = Authority(certificates)
    if "clock" in wrong:
        then = authority._now() + SHIFT * (1 if wrong == "clock behind" else -1)
        with mock.patch.object(authority, "_now", return_value=then):
            ours.issue("edge", "a", hours=1)
    if wrong == "certificate expired":
        issue_ended(certificates, "client", "c0")
    shutil.copytree(certificates, tmp_path / "here" / "certificates")
    if "another CA" in wrong:
        Authority.create(tmp_path / "other", "test").issue("client", "c0")
        names = ["client/c0.pem"] + (["ca.pem"] if wrong.startswith("all") else [])
        for name in names:
            shutil.copy(tmp_path / "other" / name, tmp_path / "here" / "certificates" / name)

    async def run() -> None:
        async with World(deployment) as world:
            node = Process(world, "edge", "a")
            await world.until(lambda: node.saw("listening"))
            transport = GrpcTransport(here, Credentials(here, "client", "c0"))
            stream = await transport.dial("a", Call.WORK)
            with pytest.raises(StreamLost) as lost:
                await greet(stream)
            assert at_caller in lost.value.reason
            stream.close()
            await stream.wait_closed()
            await world.until(lambda: node.saw("handshake-refused"))
            told = [line for line in node.lines() if line["event"] == "handshake-refused"]
            assert {line["reason"] for line in told} == {at_edge}

    asyncio.run(run())
