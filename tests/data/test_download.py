from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from sdfeel.data.download import Download, SourceError, download, shown

BODY = bytes(range(256)) * 5000  # 1.28 MB: several chunks


def item(web: Any, body: bytes = BODY) -> Download:
    web.pages["/pack.tgz"] = body
    return Download(f"{web.url}/pack.tgz", len(BODY), hashlib.sha256(BODY).hexdigest())


def test_a_download_arrives_whole_and_reports_progress(web: Any, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    path, was_there = download(item(web), tmp_path, lambda *step: seen.append(step))
    assert (path.read_bytes(), was_there) == (BODY, False)
    assert seen[0] == ("pack.tgz", 0, len(BODY))
    assert seen[-1] == ("pack.tgz", len(BODY), len(BODY))
    assert [p.name for p in tmp_path.iterdir()] == ["pack.tgz"]


def test_a_part_left_by_an_earlier_attempt_is_continued(web: Any, tmp_path: Path) -> None:
    (tmp_path / "pack.tgz.part").write_bytes(BODY[:1000])
    path, _ = download(item(web), tmp_path)
    assert path.read_bytes() == BODY
    assert web.asked == [("/pack.tgz", "bytes=1000-")]


def test_a_broken_connection_is_taken_up_where_it_broke(web: Any, tmp_path: Path) -> None:
    web.cut_after = [700_000, 300_000]
    path, _ = download(item(web), tmp_path)
    assert path.read_bytes() == BODY
    assert [wanted for _, wanted in web.asked] == [None, "bytes=700000-", "bytes=1000000-"]


def test_a_server_without_ranges_starts_over(web: Any, tmp_path: Path) -> None:
    web.ranges = False
    (tmp_path / "pack.tgz.part").write_bytes(b"x" * 1000)
    path, _ = download(item(web), tmp_path)
    assert path.read_bytes() == BODY


def test_a_connection_that_always_breaks_is_given_up_and_its_part_kept(
    web: Any, tmp_path: Path
) -> None:
    web.cut_after = [10, 10, 10, 10, 10, 10]
    with pytest.raises(SourceError, match="ended after 40 of 1,280,000 bytes"):
        download(item(web), tmp_path)
    assert len(web.asked) == 4
    assert (tmp_path / "pack.tgz.part").read_bytes() == BODY[:40]


def test_wrong_bytes_are_refused_and_not_resumed(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="what was sent has the sha256"):
        download(item(web, b"y" * len(BODY)), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_part_costs_one_attempt_not_all(web: Any, tmp_path: Path) -> None:
    (tmp_path / "pack.tgz.part").write_bytes(b"z" * 1000)
    wanted = item(web)
    with pytest.raises(SourceError, match="sha256"):
        download(wanted, tmp_path)
    assert download(wanted, tmp_path)[0].read_bytes() == BODY


def test_more_bytes_than_promised_are_refused(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="sends more than"):
        download(item(web, BODY + b"!"), tmp_path)


@pytest.mark.parametrize(("path", "reason"), [("/none", "answered 404"), ("/pack.tgz", "416")])
def test_refusals_are_told(web: Any, tmp_path: Path, path: str, reason: str) -> None:
    web.pages["/pack.tgz"] = BODY[:100]  # shorter than promised: a range beyond it gets 416
    (tmp_path / "pack.tgz.part").write_bytes(BODY[:200])
    with pytest.raises(SourceError, match=reason):
        download(Download(web.url + path, len(BODY), "0" * 64), tmp_path)


def test_nobody_listens(web: Any, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="Connection refused"):
        download(Download("http://127.0.0.1:9/pack.tgz", 1, "0" * 64), tmp_path)


def test_only_web_addresses_are_opened(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="only http and https"):
        download(Download("file:///etc/hostname", 1, "0" * 64), tmp_path)


def test_a_package_placed_by_hand_is_used_if_right(web: Any, tmp_path: Path) -> None:
    wanted = item(web)
    (tmp_path / "pack.tgz").write_bytes(BODY)
    assert download(wanted, tmp_path) == (tmp_path / "pack.tgz", True)
    (tmp_path / "pack.tgz").write_bytes(BODY[:-1])
    with pytest.raises(SourceError, match=r"pack\.tgz has 1,279,999 bytes instead of"):
        download(wanted, tmp_path)
    assert web.asked == []


def test_messages_show_no_secrets() -> None:
    assert shown("https://me:secret@host:1/a/b?token=t") == "https://host:1/a/b"
