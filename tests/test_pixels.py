"""Images that stay bytes train to the same bits as images made real numbers beforehand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sdfeel
from sdfeel.data import ClientData, Pixels, load
from sdfeel.engines.fast import compile_model
from sdfeel.errors import InputError
from sdfeel.trees import cut, joined, leaves, mapped, ready

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
NETWORK = sdfeel.Network.ring(servers=3, clients_per_server=2)


def as_before(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """How data sets were made real numbers as a whole, a channel after the other."""
    found = images.to(torch.float32)
    for channel, (m, s) in enumerate(zip(mean, std, strict=True)):
        found[:, channel].sub_(255 * m).div_(255 * s)
    return found


def images(samples: int, *shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(samples)
    return torch.randint(256, (samples, *shape), generator=generator, dtype=torch.uint8)


def test_every_byte_in_every_channel_has_the_bits_it_had_before() -> None:
    every = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1).expand(256, 3, 2, 5)
    pixels = Pixels(every.contiguous(), MEAN, STD)
    wanted = as_before(every, MEAN, STD)
    assert torch.equal(pixels.real(), wanted)
    assert torch.equal(pixels.table(), wanted[:, :, 0, 0].T)
    one = Pixels(every[:, 0].contiguous(), 0.1307, 0.3081)
    assert torch.equal(one.real(), as_before(every[:, :1], (0.1307,), (0.3081,))[:, 0])
    assert torch.equal(Pixels(every.contiguous()).real(), every.float() / 255)


def test_the_embedded_digits_are_bytes_in_memory() -> None:
    data = load("mnist-5k")
    assert data.train_pixels.values.dtype == torch.uint8
    wanted = as_before(data.train_pixels.values, (0.1307,), (0.3081,))
    assert torch.equal(data.train_inputs, wanted)


def test_taking_cutting_and_joining_keep_bytes_and_scale() -> None:
    pixels = Pixels(images(7, 3, 4, 4), MEAN, STD)
    tree = {"image": pixels, "size": torch.arange(7.0)}
    again = joined(list(cut(tree, 3)))
    assert again["image"].values.dtype == torch.uint8
    assert torch.equal(ready(again)["image"], pixels.real())
    # The vectorised engine takes batches of several clients: one more dimension before the channel.
    rows = torch.tensor([[0, 1, 2], [4, 5, 6]])
    taken = mapped(lambda tensor: tensor[rows], tree)
    assert torch.equal(ready(taken)["image"], pixels.real()[rows])
    assert [tensor.dtype for tensor in leaves(tree)] == [torch.uint8, torch.float32]


def stores(shape: tuple[int, ...], scale: tuple[Any, Any], sizes: tuple[int, ...]) -> Any:
    """The same clients with bytes and with real numbers; sizes below, at and above the batch."""
    whole = images(sum(sizes), *shape)
    mean, std = scale
    channels = (mean, std) if isinstance(mean, tuple) else ((mean,) * shape[0], (std,) * shape[0])
    labels = torch.arange(len(whole)) % 4
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return (
        ClientData(Pixels(whole, mean, std), labels, ends),
        ClientData(as_before(whole, *channels), labels, ends),
    )


def networks(shape: tuple[int, ...]) -> dict[str, nn.Module]:
    flat = int(np.prod(shape))
    return {
        "image": nn.Sequential(
            nn.Conv2d(shape[0], 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(4 * (shape[1] // 2) * (shape[2] // 2), 4),
        ),
        "flat": nn.Sequential(nn.Flatten(), nn.Linear(flat, 5), nn.Tanh(), nn.Linear(5, 4)),
    }  # fmt: skip


@pytest.mark.parametrize("engine", ["reference", "loop", "vectorised", "fast"])
@pytest.mark.parametrize(
    ("kind", "scale"), [("image", (MEAN, STD)), ("flat", (0.3, 0.2))], ids=["image", "flat"]
)
def test_bytes_train_to_the_bits_of_real_numbers(engine: str, kind: str, scale: Any) -> None:
    shape = (3, 6, 6)
    torch.manual_seed(0)
    model = networks(shape)[kind]
    found = [
        sdfeel.train(
            model,
            data,
            network=NETWORK,
            test=data,
            steps=5,
            lr=0.1,
            batch_size=4,
            evaluate_every=2,
            engine=engine,
        )
        for data in stores(shape, scale, (3, 4, 5, 4, 9, 2))
    ]
    assert [result.engine for result in found] == [engine, engine]
    for own, other in zip(*(r.model.parameters() for r in found), strict=True):
        assert torch.equal(own, other)
    assert found[0].history.equals(found[1].history)


def test_a_float64_model_gets_the_same_numbers_in_float64() -> None:
    """float32 first, then double: that is what data of float32 becomes as well."""
    models = []
    for data in stores((1, 4, 4), (0.3, 0.2), (6,) * 6):
        torch.manual_seed(0)
        model = networks((1, 4, 4))["flat"].double()
        run = sdfeel.train(model, data, network=NETWORK, steps=3, batch_size=4, engine="loop")
        models.append(next(run.model.parameters()))
    assert models[0].dtype == torch.float64
    assert torch.equal(*models)


def test_a_checkpoint_of_real_numbers_goes_on_with_bytes(tmp_path: Any) -> None:
    """The fingerprint is one of what is learnt from, not of how it is kept."""
    torch.manual_seed(0)
    model = networks((1, 4, 4))["flat"]
    pixels, real = stores((1, 4, 4), (0.3, 0.2), (6,) * 6)
    own = {"network": NETWORK, "batch_size": 4, "engine": "reference"}
    sdfeel.train(model, real, steps=3, out=tmp_path / "run", **own)
    gone_on = sdfeel.train(model, pixels, steps=6, out=tmp_path / "run", resume=True, **own)
    whole = sdfeel.train(model, pixels, steps=6, **own)
    for a, b in zip(gone_on.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_fast_engine_keeps_no_real_copy_of_the_images() -> None:
    pixels, _ = stores((3, 6, 6), (MEAN, STD), (8,) * 6)
    compiled = compile_model(
        networks((3, 6, 6))["flat"], "cross-entropy", (3, 6, 6), optimise="-O1", tables=3
    )
    outputs = compiled.forward(torch.zeros(compiled.parameters).numpy() + 0.01, pixels.inputs)
    assert np.ptp(outputs[:, 0]) > 0  # flat, with a table for each channel: the third way to read
    held, table = compiled._inputs(pixels.inputs)
    assert held.ctypes.data == pixels.inputs.values.data_ptr()
    assert table.shape == (3, 256)
    with pytest.raises(InputError, match="compiled for 3"):
        compiled._inputs(Pixels(pixels.inputs.values, 0.3, 0.2))


def test_a_pair_of_pixels_and_labels_is_a_clients_data_and_a_test_of_bytes_has_its_scale() -> None:
    data = [(Pixels(images(6, 1, 4, 4), 0.3, 0.2), np.arange(6) % 4) for _ in range(6)]
    torch.manual_seed(0)
    model = networks((1, 4, 4))["flat"]
    own = {"network": NETWORK, "steps": 2, "batch_size": 4, "engine": "reference"}
    labels = torch.arange(6) % 4
    tests = [
        (images(6, 1, 4, 4), labels),
        (Pixels(images(6, 1, 4, 4), 0.3, 0.2).real(), labels),
    ]
    losses = [sdfeel.train(model, data, test=t, **own).history["test_loss"].iloc[-1] for t in tests]
    assert losses[0] == losses[1]


def test_what_cannot_be_scaled_is_named() -> None:
    with pytest.raises(InputError, match=r"must be bytes, torch\.uint8"):
        Pixels(torch.zeros(3, 1, 4, 4))
    with pytest.raises(InputError, match="one for each of 1 channels"):
        Pixels(images(3, 1, 4, 4), MEAN, STD)
    with pytest.raises(InputError, match="above 0"):
        Pixels(images(3, 1, 4, 4), 0.0, 0.0)
    other = [(Pixels(images(6, 1, 4, 4), 0.1 * i), np.arange(6) % 4) for i in range(6)]
    with pytest.raises(InputError, match="must be as client 0's: pixels"):
        ClientData.from_datasets(other)


def test_bytes_without_a_scale_reach_the_model_as_before_and_the_refusal_names_pixels() -> None:
    data = [(images(6, 1, 4, 4), np.arange(6) % 4) for _ in range(6)]

    class OwnScale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = networks((1, 4, 4))["flat"]

        def forward(self, x: Tensor) -> Tensor:
            assert x.dtype == torch.uint8
            return self.inner(x.float() / 255)

    own = {"network": NETWORK, "steps": 1, "batch_size": 4, "engine": "reference"}
    assert sdfeel.train(OwnScale(), data, **own).iterations == 1
    with pytest.raises(InputError, match=r"sdfeel\.data\.Pixels"):
        sdfeel.train(networks((1, 4, 4))["flat"], data, **own)
