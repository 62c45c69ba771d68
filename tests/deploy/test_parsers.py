"""Files from outside that used to end in a traceback, an endless loop or a full memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from harness import as_toml, content

from sdfeel.data.archives import ar_member
from sdfeel.data.registries import SourceError
from sdfeel.deploy.config import load_deployment, parse_deployment
from sdfeel.deploy.topology import Topology
from sdfeel.errors import InputError
from sdfeel.network import build_graph, read_graph
from sdfeel.toml import MAX_DEPTH, read_toml


@pytest.mark.parametrize(
    "added",
    [
        "x = " + "[" * 100_000,
        "x = " + "[" * 900 + "]" * 900,
        "x = " + "{a=" * 900 + "1" + "}" * 900,
        "a." * 5_000 + "b = 1",
        "x = " + "9" * 5_000,
        "x = 9223372036854775808",
        "x = -9223372036854775809",
        "x = 2024-02-31",
        "x = \x00",
    ],
    ids=range(9),
)
def test_a_deployment_file_that_no_program_could_read(tmp_path: Path, added: str) -> None:
    file = tmp_path / "d.toml"
    file.write_text(added + "\n" + as_toml(content((1,))))
    with pytest.raises(InputError, match="deployment file"):
        load_deployment(file)


@pytest.mark.parametrize("source", ["missing", "nul\0", "."])
def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path, source: str) -> None:
    with pytest.raises(InputError, match="a profile ="):
        read_toml(tmp_path / source, "a profile")


def test_limits_of_toml_are_where_they_say(tmp_path: Path) -> None:
    """At the limit and one beyond it: bytes, bits, depth."""
    file = tmp_path / "t.toml"
    file.write_text("x = 1")
    assert read_toml(file, "t", most=5) == {"x": 1}
    with pytest.raises(InputError, match="at most 4 bytes"):
        read_toml(file, "t", most=4)
    assert read_toml("x = 9223372036854775807", "t") == {"x": 2**63 - 1}
    deep = MAX_DEPTH - 1
    read_toml("x = " + "[" * deep + "]" * deep, "t")
    with pytest.raises(InputError, match="deep"):
        read_toml("x = " + "[" * (deep + 1) + "]" * (deep + 1), "t")
    file.write_bytes(b'x = "\xff"')
    with pytest.raises(InputError, match="utf-8"):
        read_toml(file, "t")


@pytest.mark.parametrize(
    ("table", "key", "value"),
    [
        ("deadlines", "ping", float("inf")),
        ("deadlines", "ping", float("nan")),
        ("deadlines", "round", 1e300),
        ("schedule", "alpha", 2**62),
        ("schedule", "tau1", 2**40),
        ("averaging", "limit", float("inf")),
        ("local", "lr", float("nan")),
        ("limits", "connections", 2**40),
        ("model", "initial", "a\0b"),
    ],
)
def test_numbers_that_would_overflow_later_are_refused_at_once(
    tmp_path: Path, table: str, key: str, value: object
) -> None:
    given = content((1, 1))
    given[table] = given.get(table, {}) | {key: value}
    with pytest.raises(InputError, match=rf"{table}\.{key}"):
        Topology(parse_deployment(given, tmp_path))


@pytest.mark.parametrize("field", ["address", "listen", "metrics"])
@pytest.mark.parametrize(
    "bad", ["7001", "host:", "host:65536", "a b:1", "[::1:7", "x:-1", "u://h:1"]
)
def test_a_bad_address_is_named(tmp_path: Path, field: str, bad: str) -> None:
    given = content((1,))
    given["edges"][0][field] = bad
    with pytest.raises(InputError, match=rf"edges\.0\.{field}.*host:port"):
        parse_deployment(given, tmp_path)


def test_good_addresses_stay_good(tmp_path: Path) -> None:
    given = content((1,))
    given["edges"][0] |= {"address": "[::1]:7001", "listen": "0.0.0.0:0", "metrics": "h.org:65535"}
    assert parse_deployment(given, tmp_path).edges[0].address == "[::1]:7001"


@pytest.mark.parametrize("text", ["0 " + "9" * 5_000, "0 1 2", "0 -1", "0 1.5", "\x00"])
def test_a_graph_file_names_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "g.txt"
    path.write_text(f"0 1\n{text}\n")
    with pytest.raises(InputError, match=r"g\.txt, line 2"):
        read_graph(path)


@pytest.mark.parametrize(
    ("name", "servers", "options"),
    [
        ("ring", 10**9, {}),
        ("full", 10_000, {}),
        ("partial", 10_000, {}),
        ("random", 100, {"degree": float("nan")}),
        ("random", 100, {"seed": float("inf")}),
        ("small-world", 100, {"degree": float("inf")}),
        ("small-world", 100, {"degree": -3}),
    ],
)
def test_a_graph_that_cannot_be_made_is_refused(
    name: str, servers: int, options: dict[str, float]
) -> None:
    with pytest.raises(InputError):
        build_graph(name, servers, **options)


def test_options_of_a_graph_may_be_floats_as_toml_gives_them() -> None:
    for name in ("random", "small-world"):
        whole, real = build_graph(name, 20, seed=3), build_graph(name, 20, seed=3.0)
        assert set(whole.edges()) == set(real.edges())


@pytest.mark.parametrize("size", ["-60", "1_0", "0x10", "", "1e3", "99"])
def test_an_ar_archive_with_a_strange_size_ends(tmp_path: Path, size: str) -> None:
    """A negative size led back to the same header, for ever."""
    path = tmp_path / "a.deb"
    header = b"data.tar".ljust(48) + size.encode().ljust(10) + b"`\n"
    path.write_bytes(b"!<arch>\n" + header + b"x" * 60)
    for prefix in ("data", "other"):
        found: list[BaseException] = []

        def read(prefix: str = prefix, found: list[BaseException] = found) -> None:
            try:
                ar_member(path, prefix, 1000)
            except SourceError as problem:
                found.append(problem)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(60)
        assert found, f"{prefix}: no named end"
