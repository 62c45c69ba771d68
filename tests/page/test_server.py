"""What the server answers, and what it refuses: it is read-only, and names no file of the disk."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sdfeel.cli.watch import watch
from sdfeel.errors import InputError
from sdfeel.page.runs import Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.views import Views


def get(server: PageServer, path: str, method: str = "GET", **headers: str):
    """Status, headers and body, whatever the path looks like."""
    where = urlsplit(server.address)
    line = http.client.HTTPConnection(where.hostname, where.port, timeout=20)
    line.request(method, path, headers=headers)
    answer = line.getresponse()
    body = answer.read()
    line.close()
    return answer.status, dict(answer.getheaders()), body


def ask(server: PageServer, path: str):
    status, _, body = get(server, f"/api/{path}")
    assert status == 200, body
    return json.loads(body)


def test_runs_are_told_with_their_rows_and_last_row(serve, write_run, curve, tmp_path) -> None:
    table = curve(count=7)
    write_run(table, "one")
    write_run(curve(count=3), "two", summary=False)
    runs = {run["name"]: run for run in ask(serve(tmp_path), "runs")["runs"]}
    assert runs.keys() == {"one", "two"}
    assert (runs["one"]["rows"], runs["two"]["rows"]) == (7, 3)
    assert runs["one"]["last"] == table.iloc[-1].to_dict(), "the very floats of the file"
    assert (runs["one"]["state"], runs["two"]["state"]) == ("finished", "under way")


def test_every_number_is_that_of_the_file(serve, write_run, curve, tmp_path) -> None:
    table = curve(count=12, seed=3)
    write_run(table, "one")
    server = serve(tmp_path)
    ask(server, "runs")
    columns = ask(server, "rows?run=one&start=5")["columns"]
    assert columns == {name: table[name].tolist()[5:] for name in table.columns}


@pytest.mark.parametrize(
    "path",
    ["/../../etc/passwd", "/static/main.js", "/%2e%2e/conftest.py", "//etc/passwd", "/api/",
     "/api/../main.js", "/run.json", "/api/__class__"],
)  # fmt: skip
def test_no_path_leads_to_the_disk(serve, tmp_path: Path, path: str) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert get(serve(tmp_path), path)[0] == 404


def test_a_run_outside_the_folders_is_not_opened(serve, write_run, curve, tmp_path: Path) -> None:
    write_run(curve(count=3), "secret")
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "link").symlink_to(tmp_path / "secret")
    server = serve(watched)
    assert ask(server, "runs")["runs"] == [], "a link out of the folder is not followed"
    for name in ("../secret", str(tmp_path / "secret"), "link"):
        status, _, body = get(server, f"/api/rows?run={name}&start=0")
        assert status == 400
        assert b"is no run of the folders" in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(serve, tmp_path: Path, method: str) -> None:
    assert get(serve(tmp_path), "/api/runs", method)[0] == 501


def test_nothing_from_elsewhere_is_allowed(serve, tmp_path: Path) -> None:
    server = serve(tmp_path)
    _, headers, _ = get(server, "/")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert "unsafe" not in policy
    # A site whose name was made to lead to this machine must not read the page.
    assert get(server, "/api/runs", Host="evil.example")[0] == 403


def test_the_page_is_small() -> None:
    server = PageServer(Views(Runs([])))
    server.server_close()
    assert sum(len(body) for _, body in server.files.values()) < 300_000


def test_another_address_needs_the_token(tmp_path: Path) -> None:
    with serving(PageServer(Views(Runs([tmp_path])), "0.0.0.0")) as server:  # noqa: S104
        where = urlsplit(server.address)
        assert where.query == f"token={server.token}"
        assert len(server.token) >= 32
        assert get(server, "/api/runs")[0] == 401
        assert get(server, "/api/runs?token=wrong")[0] == 401
        status, headers, _ = get(server, f"/?{where.query}")
        assert status == 200
        cookie = headers["Set-Cookie"].split(";")[0]
        assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
        assert get(server, "/api/runs", Cookie=cookie)[0] == 200


def test_mistakes_are_named(tmp_path: Path, serve) -> None:
    with pytest.raises(InputError, match="must be a folder"):
        watch([tmp_path / "nothing"])
    with pytest.raises(InputError, match="cannot listen"):
        PageServer(Views(Runs([])), "127.0.0.1", serve(tmp_path).server_address[1])
    status, _, body = get(serve(tmp_path), "/api/what-if?tau1=0")
    assert status == 400
    assert "tau1 = '0': a whole number from 1" in json.loads(body)["error"]


def test_the_address_is_the_first_line(write_run, curve, tmp_path: Path) -> None:
    write_run(curve(count=3), "one")
    command = [sys.executable, "-m", "sdfeel", "watch", str(tmp_path), "--port", "0", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        try:
            address = page.stdout.readline().strip()
            with urllib.request.urlopen(f"{address}api/runs", timeout=20) as answer:  # noqa: S310
                assert json.load(answer)["runs"][0]["rows"] == 3
        finally:
            page.terminate()


def test_broken_folders_get_a_sentence_each(serve, write_run, curve, tmp_path: Path) -> None:
    write_run(curve(count=3), "number")
    file = tmp_path / "number" / "metrics.csv"
    file.write_text(file.read_text().replace(",0.2", ",oops0.2", 1).replace(",2.3", ",oops", 1))
    write_run(curve(count=3), "json")
    (tmp_path / "json" / "run.json").write_text("{")
    write_run(curve(count=3), "bytes")
    (tmp_path / "bytes" / "metrics.csv").write_bytes(b"\xff\xfe\x00\n")
    write_run(curve(count=3), "newer")
    newer = {"packages": {"sdfeel": "99.1.0"}}
    (tmp_path / "newer" / "environment.json").write_text(json.dumps(newer))
    told = {run["name"]: " ".join(run["problems"]) for run in ask(serve(tmp_path), "runs")["runs"]}
    assert "metrics.csv is damaged: line 2, column 'train_loss' holds" in told["number"]
    assert "run.json is damaged" in told["json"]
    assert "metrics.csv is damaged" in told["bytes"]
    assert "was written by sdfeel 99.1.0" in told["newer"]


def test_the_same_run_twice_is_no_band(serve, write_run, curve, tmp_path: Path) -> None:
    """A copy of a run has no other seed; a third that has one belongs to either of them."""
    for name, seed in (("one", 0), ("copy", 0), ("other", 1)):
        write_run(curve(count=3), name, seed=seed)
    groups = [run["group"] for run in ask(serve(tmp_path), "runs")["runs"]]
    assert len(set(groups)) == 2


def test_an_empty_folder_gets_a_sentence(serve, tmp_path: Path) -> None:
    assert "No run in" in ask(serve(tmp_path), "runs")["notes"][0]
