"""What the server answers, and what it refuses: it is read-only, and names no file of the disk."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sdfeel.cli.watch import watch
from sdfeel.errors import InputError
from sdfeel.page.runs import Runs
from sdfeel.page.server import PageServer, serving
from sdfeel.page.timeline import network_of
from sdfeel.page.views import Views
from sdfeel.records.reading import MOST_JSON, MOST_TABLE


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


@pytest.mark.parametrize(
    "host", ["", "[", "[::1", "]", "a]b:1", "[v1.x]:80", "x:y", "a/b", "u@localhost"]
)
def test_a_host_that_is_none_is_a_bad_request(serve, tmp_path: Path, host: str, capfd) -> None:
    server = serve(tmp_path)
    assert get(server, "/api/runs", Host=host)[0] in ((400, 403) if "v1" in host else (400,))
    assert "Traceback" not in capfd.readouterr().err


def test_a_path_that_is_none_is_not_here(serve, tmp_path: Path) -> None:
    assert get(serve(tmp_path), "//[/api/runs")[0] == 404


# Folders that others write to.


def test_a_run_that_becomes_a_link_between_two_looks_is_not_read(
    serve, write_run, curve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sdfeel.page.runs.SCAN_EVERY", float("inf"))
    monkeypatch.setattr("sdfeel.page.runs.LOOK_EVERY", 0)
    for folder in ("elsewhere", "watched/deep"):
        (tmp_path / folder).mkdir(parents=True)
    write_run(curve(count=7), "elsewhere/run")
    write_run(curve(count=3), "watched/deep/run")
    server = serve(tmp_path / "watched")
    assert ask(server, "runs")["runs"][0]["rows"] == 3
    (tmp_path / "watched" / "deep").rename(tmp_path / "watched" / "before")
    (tmp_path / "watched" / "deep").symlink_to(tmp_path / "elsewhere")
    (run,) = ask(server, "runs")["runs"]
    assert run["rows"] == 0
    assert "a link leads out of the folder" in " ".join(run["problems"])


def test_a_folder_that_is_a_link_may_be_watched(serve, write_run, curve, tmp_path: Path) -> None:
    """It is the user who names it."""
    (tmp_path / "there").mkdir()
    write_run(curve(count=3), "there/run")
    (tmp_path / "latest").symlink_to(tmp_path / "there")
    (run,) = ask(serve(tmp_path / "latest"), "runs")["runs"]
    assert (run["rows"], run["problems"]) == (3, [])


@pytest.mark.parametrize("file", ["metrics.csv", "network.json", "summary.json", "trace.csv"])
def test_only_regular_files_of_the_folder_are_read(
    serve, write_run, curve, tmp_path: Path, file: str
) -> None:
    """Neither what a link leads to nor a pipe, which would keep every answer waiting."""
    secret = tmp_path / "secret"
    secret.write_text('iteration,password\n1,7\n{"password": 7}')
    watched = tmp_path / "watched"
    watched.mkdir()
    for name in ("link", "pipe", "folder", "good"):
        write_run(curve(count=3), f"watched/{name}")
        if name != "good":
            (watched / name / file).unlink(missing_ok=True)
    (watched / "link" / file).symlink_to(secret)
    os.mkfifo(watched / "pipe" / file)
    (watched / "folder" / file).mkdir()
    found = {run["name"]: run for run in ask(serve(watched), "runs")["runs"]}
    assert found["good"]["rows"] == 3
    assert not found["good"]["problems"]
    for name in ("link", "pipe", "folder"):
        assert f"{file} must be a regular file" in " ".join(found[name]["problems"])
        assert "password" not in json.dumps(found[name])


def test_a_plan_that_is_no_regular_file_is_not_read(serve, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    server = serve(tmp_path)
    (name,) = ask(server, "runs")["plans"]
    (tmp_path / "plan.json").unlink()
    os.mkfifo(tmp_path / "plan.json")
    status, _, body = get(server, f"/api/what-if?plan={name}")
    assert status == 400
    assert b"regular file" in body


@pytest.mark.parametrize("file", ["run.json", "network.json", "summary.json", "environment.json"])
def test_json_that_is_nested_deep_empties_one_run_only(
    serve, write_run, curve, tmp_path: Path, file: str
) -> None:
    write_run(curve(count=3), "deep")
    write_run(curve(count=3), "good")
    (tmp_path / "deep" / file).write_text('{"a": ' + "[" * 900 + "]" * 900 + "}")
    server = serve(tmp_path)
    for _ in range(2):
        found = {run["name"]: run for run in ask(server, "runs")["runs"]}
        assert found["good"]["rows"] == found["deep"]["rows"] == 3
        assert f"{file} is damaged: it is nested deeper" in " ".join(found["deep"]["problems"])


def test_a_file_that_is_too_large_is_not_read(
    serve, write_run, curve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(curve(count=3), "large")
    write_run(curve(count=3), "good")
    with (tmp_path / "large" / "network.json").open("ab") as file:
        file.truncate(MOST_JSON + 1)
    with (tmp_path / "large" / "metrics.csv").open("ab") as file:
        file.truncate(MOST_TABLE + 1)
    found = {run["name"]: run for run in ask(serve(tmp_path), "runs")["runs"]}
    assert (found["large"]["rows"], found["good"]["rows"]) == (0, 3)
    assert "larger than" in " ".join(found["large"]["problems"])


@pytest.mark.parametrize(
    "sizes",
    [[10**6] * 10, [1] * 10**6, [10**15], [-1], [True], ["1"], [1.5], 10**6, {"0": 1}],
    ids=lambda sizes: str(sizes)[:12],
)
def test_a_network_of_a_size_that_cannot_be_is_refused(sizes: object) -> None:
    """Before anything of that size is made."""
    drawn = {"sizes": sizes, "samples": [1.0], "links": []}
    with pytest.raises(InputError, match=r"network\.json"):
        network_of(drawn, {})


@pytest.mark.parametrize(
    ("servers", "each"), [(10**6, 1), (5, 10**6), (5, [10**6] * 5), (10**9, [1])]
)
def test_so_is_one_of_a_run_without_a_network(servers: int, each: object) -> None:
    table = {"graph": "ring", "servers": servers, "clients_per_server": each}
    with pytest.raises(InputError, match=r"network\.json"):
        network_of({}, {"network": table})
    table = {"graph": "ring", "servers": 5, "clients_per_server": [1, 2, 3, 4, 5]}
    assert network_of({}, {"network": table}).clients == 15


def test_the_page_is_small() -> None:
    server = PageServer(Views(Runs([])))
    server.server_close()
    assert sum(len(body) for _, body in server.files.values()) < 300_000


@pytest.fixture
def open_to_others(tmp_path: Path):
    with serving(PageServer(Views(Runs([tmp_path])), "0.0.0.0")) as server:  # noqa: S104
        yield server


def test_another_address_needs_the_token(open_to_others: PageServer) -> None:
    server = open_to_others
    assert urlsplit(server.address).query == f"token={server.token}"
    assert len(server.token) >= 32
    for path in ("/", "/main.js", "/api/runs", "/api/runs?token=wrong", "/?token="):
        assert get(server, path)[0] == 401


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/?token=", "/"),
        ("/api/rows?run=a%26b&token=", "/api/rows?run=a%26b"),
        ("//evil.example/?token=", "/evil.example/"),
        ("/\\evil.example/?token=", "/%5Cevil.example/"),
    ],
)
def test_the_token_leaves_the_address_with_the_first_load(
    open_to_others: PageServer, path: str, clean: str
) -> None:
    server = open_to_others
    status, headers, body = get(server, path + server.token)
    assert (status, headers["Location"]) == (303, clean)
    assert server.token.encode() not in body
    cookie, *attributes = headers["Set-Cookie"].split("; ")
    assert cookie == f"sdfeel-page-{server.server_address[1]}={server.token}"
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} == set(attributes)
    status, headers, _ = get(server, "/", Cookie=cookie)
    assert status == 200
    assert "Set-Cookie" not in headers


def test_the_cookie_of_one_port_does_not_open_another(
    open_to_others: PageServer, tmp_path: Path
) -> None:
    """A browser sends the cookies of a host to all of its ports."""
    with serving(PageServer(Views(Runs([tmp_path])), "0.0.0.0")) as other:  # noqa: S104
        kept = []
        for server in (open_to_others, other):
            kept.append(get(server, f"/?token={server.token}")[1]["Set-Cookie"].split("; ")[0])
        first, second = kept
        name, value = first.split("=", 1)[0], second.split("=", 1)[1]
        assert first.split("=")[0] != second.split("=")[0]
        for cookie in (second, f"{name}={value}", f"x={first}", "=;;", '"'):
            assert get(open_to_others, "/api/runs", Cookie=cookie)[0] == 401
        assert get(open_to_others, "/api/runs", Cookie=f"{second}; {first}")[0] == 200


def test_the_page_serves_a_bounded_number_of_connections(tmp_path: Path) -> None:
    server = PageServer(Views(Runs([tmp_path])), most=4)
    with serving(server), ExitStack() as stack:
        where = server.server_address[:2]
        for _ in range(40):
            stack.enter_context(socket.create_connection(where, timeout=60))
        assert get(server, "/")[0] == 200
        assert server.open_connections <= 4


def test_mistakes_are_named(tmp_path: Path, serve) -> None:
    (tmp_path / "a file").write_text("no runs")
    with pytest.raises(InputError, match="must be a folder"):
        watch([tmp_path / "a file"])
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
