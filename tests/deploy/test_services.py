"""Units and log rotation: they call what there is, and the same files."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer

from sdfeel.cli import app
from sdfeel.deploy.operate.ending import INTERRUPTED, STOP_SECONDS, THREAD_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples" / "deployment"
UNITS = {"edge": "sdfeel-edge@.service", "client": "sdfeel-client@.service"}
ROTATION = (EXAMPLES / "sdfeel.logrotate").read_text(encoding="utf-8")


def service(role: str) -> dict[str, str]:
    parser = ConfigParser(strict=True, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(EXAMPLES / UNITS[role], encoding="utf-8")
    return dict(parser["Service"])


@pytest.mark.parametrize("role", UNITS)
def test_a_unit_calls_a_command_as_it_is(role: str) -> None:
    program, command, *words = shlex.split(service(role)["ExecStart"])
    assert (program, command) == ("/opt/sdfeel/bin/sdfeel", role)
    commands: Any = typer.main.get_command(app)
    known = commands.commands[role]
    made = known.make_context(role, words, resilient_parsing=False)
    assert made.params["name"] == "%i"
    assert "--stay" not in words, "it is the default"


@pytest.mark.parametrize("role", UNITS)
def test_a_stop_is_no_failure_and_is_given_the_time_that_it_takes(role: str) -> None:
    found = service(role)
    assert found["SuccessExitStatus"] == str(INTERRUPTED)
    assert float(found["TimeoutStopSec"]) > STOP_SECONDS + THREAD_SECONDS
    assert found["RestartPreventExitStatus"] == "2"


@pytest.mark.parametrize("role", UNITS)
def test_logs_of_a_unit_are_rotated(role: str) -> None:
    words = shlex.split(service(role)["ExecStart"])
    log = words[words.index("--log") + 1]
    assert log.startswith(f"/var/log/{service(role)['LogsDirectory']}/")
    (pattern,) = re.findall(r"^(/\S+) \{$", ROTATION, re.MULTILINE)
    assert fnmatch.fnmatch(log, pattern)
    assert f"'{UNITS[role].replace('@', '@*')}'" in ROTATION
    assert service(role)["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert "delaycompress" in ROTATION, "the old file is written to until the signal comes"


ANALYZE = shutil.which("systemd-analyze") or ""


@pytest.mark.skipif(not ANALYZE, reason="no systemd here")
@pytest.mark.parametrize("role", UNITS)
def test_systemd_understands_a_unit(role: str, tmp_path: Path) -> None:
    """Also what it would only warn of; the program itself is not there."""
    text = (EXAMPLES / UNITS[role]).read_text(encoding="utf-8")
    path = tmp_path / UNITS[role].replace("@", "@x")
    path.write_text(text.replace("/opt/sdfeel/bin/sdfeel", "/bin/true").replace("%i", "x"))
    found = subprocess.run(
        [ANALYZE, "verify", "--man=no", path], capture_output=True, text=True, check=False
    )
    told = [line for line in found.stderr.splitlines() if path.name in line]
    assert not told, told
