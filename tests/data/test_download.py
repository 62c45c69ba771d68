from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from sdfeel.data.catalogue import Packed
from sdfeel.data.download import Download
from sdfeel.data.registries import SourceError
from sdfeel.data.resuming import CHUNK

BODY = bytes(range(256)) * 5000  # 1.28 MB: several chunks
PACKED = Packed(len(BODY), hashlib.sha256(BODY).hexdigest())
OTHER = Packed(len(BODY), "0" * 64)


def item(web: Any, body: bytes = BODY) -> Download:
    web.pages["/pack.tgz"] = body
    return Download(f"{web.url}/pack.tgz", PACKED)


def test_a_download_arrives_whole_and_reports_progress(web: Any, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path = item(web).retrieve(tmp_path, lambda *step: seen.append(step))
    assert path.read_bytes() == BODY
    assert len(seen) > 2
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("pack.tgz", len(BODY), len(BODY))
    assert [p.name for p in tmp_path.iterdir()] == ["pack.tgz"]


def test_a_part_left_by_an_earlier_attempt_is_continued(web: Any, tmp_path: Path) -> None:
    (tmp_path / "pack.tgz.part").write_bytes(BODY[:1000])
    path = item(web).retrieve(tmp_path)
    assert path.read_bytes() == BODY
    assert web.asked == [("/pack.tgz", "bytes=1000-")]


def test_a_broken_connection_is_taken_up_where_it_broke(web: Any, tmp_path: Path) -> None:
    """Behind the last whole chunk that arrived: the rest of it is sent again."""
    web.cut_after = [50 * CHUNK, 10 * CHUNK + 99]
    path = item(web).retrieve(tmp_path)
    assert path.read_bytes() == BODY
    again = [f"bytes={count * CHUNK}-" for count in (50, 60)]
    assert [wanted for _, wanted in web.asked] == [None, *again]


def test_a_server_without_ranges_starts_over(web: Any, tmp_path: Path) -> None:
    web.ranges = False
    (tmp_path / "pack.tgz.part").write_bytes(b"x" * 1000)
    path = item(web).retrieve(tmp_path)
    assert path.read_bytes() == BODY


def test_a_connection_that_always_breaks_is_given_up_and_its_part_kept(
    web: Any, tmp_path: Path
) -> None:
    web.cut_after = [CHUNK] * 6
    with pytest.raises(SourceError, match=f"ended after {4 * CHUNK:,} of 1,280,000 bytes"):
        item(web).retrieve(tmp_path)
    assert len(web.asked) == 4
    assert (tmp_path / "pack.tgz.part").read_bytes() == BODY[: 4 * CHUNK]


def test_a_connection_that_brings_nothing_is_asked_once(web: Any, tmp_path: Path) -> None:
    web.cut_after = [0, 0]
    with pytest.raises(SourceError, match=r"pack\.tgz: "):
        item(web).retrieve(tmp_path)
    assert len(web.asked) == 1


def test_wrong_bytes_are_refused_and_not_resumed(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"SHA256 hash .* does not match"):
        item(web, b"y" * len(BODY)).retrieve(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_part_costs_one_attempt_not_all(web: Any, tmp_path: Path) -> None:
    (tmp_path / "pack.tgz.part").write_bytes(b"z" * 1000)
    wanted = item(web)
    with pytest.raises(SourceError, match="SHA256"):
        wanted.retrieve(tmp_path)
    assert wanted.retrieve(tmp_path).read_bytes() == BODY


def test_more_bytes_than_promised_are_refused(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="sends more than"):
        item(web, BODY + b"!").retrieve(tmp_path)


@pytest.mark.parametrize(("path", "reason"), [("/none", "answered 404"), ("/pack.tgz", "416")])
def test_refusals_are_told(web: Any, tmp_path: Path, path: str, reason: str) -> None:
    web.pages["/pack.tgz"] = BODY[:100]  # shorter than promised: a range beyond it gets 416
    (tmp_path / "pack.tgz.part").write_bytes(BODY[:200])
    with pytest.raises(SourceError, match=reason):
        Download(web.url + path, OTHER).retrieve(tmp_path)


def test_nobody_listens(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Connection refused"):
        Download("http://127.0.0.1:9/pack.tgz", OTHER).retrieve(tmp_path)


def test_only_web_addresses_are_opened(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No connection adapters"):
        Download("file:///etc/hostname", OTHER).retrieve(tmp_path)


def test_a_package_placed_by_hand_is_used_if_right(web: Any, tmp_path: Path) -> None:
    wanted = item(web)
    (tmp_path / "pack.tgz").write_bytes(BODY)
    assert wanted.retrieve(tmp_path) == tmp_path / "pack.tgz"
    (tmp_path / "pack.tgz").write_bytes(BODY[:-1])
    with pytest.raises(SourceError, match=r"pack\.tgz has 1,279,999 bytes instead of"):
        wanted.retrieve(tmp_path)
    assert web.asked == []


def test_messages_show_no_secrets() -> None:
    secret = Download("https://me:secret@host:1/a/b?token=t", OTHER)
    assert secret.shown == "https://host:1/a/b"


def test_pooch_prints_no_addresses(
    web: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its notes would show passwords, and stand in the middle of a progress bar."""
    item(web).retrieve(tmp_path)
    assert capfd.readouterr() == ("", "")


def test_a_file_that_the_server_calls_encoded_keeps_its_bytes(web: Any, tmp_path: Path) -> None:
    """Some servers send .gz files so; unpacked on the way they would fail their checksum."""
    body = gzip.compress(BODY, mtime=0)
    web.pages["/images.gz"] = body
    web.encoding = "gzip"
    packed = Packed(len(body), hashlib.sha256(body).hexdigest())
    path = Download(f"{web.url}/images.gz", packed).retrieve(tmp_path)
    assert path.read_bytes() == body


def test_a_redirect_goes_on_where_the_part_ends(web: Any, tmp_path: Path) -> None:
    wanted = item(web)
    web.moved["/old.tgz"] = "/pack.tgz"
    (tmp_path / "old.tgz.part").write_bytes(BODY[:1000])
    path = Download(f"{web.url}/old.tgz", wanted.packed).retrieve(tmp_path)
    assert path.read_bytes() == BODY
    assert web.asked == [("/old.tgz", "bytes=1000-"), ("/pack.tgz", "bytes=1000-")]
