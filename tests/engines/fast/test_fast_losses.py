"""Every loss: those in C against autograd, others through autograd of the outputs alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from fast_networks import vector
from torch import Tensor, nn
from torch.nn import functional

from sdfeel.data import ClientData
from sdfeel.engines.engine import Work
from sdfeel.engines.fast import Unsupported, compile_model, loss_form
from sdfeel.engines.fast.engine import FastEngine
from sdfeel.engines.problem import Problem, make_problem
from sdfeel.engines.reference import ReferenceEngine

WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.25])
KNOWN: dict[str, Callable[..., Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "smoothed": nn.CrossEntropyLoss(label_smoothing=0.1),
    "weighted": nn.CrossEntropyLoss(weight=WEIGHTS),
    "all of it": nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.2, ignore_index=1),
    "ignoring": partial(functional.cross_entropy, ignore_index=3),
    "mse": functional.mse_loss,
    "bce": functional.binary_cross_entropy_with_logits,
    "bce with weights": nn.BCEWithLogitsLoss(WEIGHTS, pos_weight=3 * WEIGHTS),
    "smooth l1": functional.smooth_l1_loss,
    "narrow smooth l1": partial(functional.smooth_l1_loss, beta=0.2),
    "smooth l1 without a curve": nn.SmoothL1Loss(beta=0.0),
    "huber": nn.HuberLoss(delta=0.4),
    "l1": nn.L1Loss(),
}


def of_labels(loss: object) -> bool:
    return loss_form(loss).has_labels


def network(outputs: int = 4) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, outputs))


@pytest.mark.parametrize("name", KNOWN)
def test_a_loss_in_c_is_that_of_torch(name: str) -> None:
    """Values and gradients, of batches within a block and above it."""
    loss, module = KNOWN[name], network().double()
    compiled = compile_model(module, loss, (5,), torch.float64, "-O1")
    for count in (1, 7, 150):
        inputs = torch.randn(count, 5, dtype=torch.float64)
        targets = torch.rand(count, 4, dtype=torch.float64)
        if of_labels(loss):
            targets = torch.randint(0, 4, (count,))
            targets[0] = 2  # a sample that no loss leaves out
        own = loss if not isinstance(loss, nn.Module) else loss.double()
        expected = own(module(inputs), targets)
        gradient = torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(expected, list(module.parameters()))]
        )
        value, found = compiled.gradient(vector(module), inputs, targets)
        assert value == pytest.approx(float(expected.detach()), rel=1e-7)
        np.testing.assert_allclose(found, gradient.numpy(), rtol=0, atol=1e-7)
        mean, _ = compiled.evaluate(vector(module), inputs, targets)
        assert mean == pytest.approx(value, rel=1e-12)
    if isinstance(loss, nn.Module):
        loss.float()


@pytest.mark.parametrize(
    "loss",
    [
        nn.MSELoss(reduction="sum"),
        partial(functional.mse_loss, reduction="none"),
        nn.CrossEntropyLoss(weight=torch.ones(3)),  # of another number of classes
        nn.BCEWithLogitsLoss(weight=torch.ones(2, 4)),
        partial(functional.mse_loss, nothing=1),
        "hinge",
    ],
)
def test_what_c_would_compute_wrongly_is_refused(loss: object) -> None:
    with pytest.raises(Unsupported):
        compile_model(network(), loss, (5,))


SAMPLES = (12, 5, 300, 20, 4, 7, 9, 11, 6, 8)


def problem(
    loss: Callable[..., Tensor], targets: Any, model: nn.Module | None = None, batch: int = 6
) -> Problem:
    rng = np.random.default_rng(2)
    inputs = torch.from_numpy(rng.normal(size=(sum(SAMPLES), 5)))
    data = ClientData(inputs, targets, np.concatenate([[0], np.cumsum(SAMPLES)]))
    return make_problem((model or network()).double(), data, loss=loss, batch_size=batch, seed=4)


def trained(engine: Any, threads: int = 2) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All clients, some of them for longer than others."""
    clients = np.arange(len(SAMPLES))
    layout, model = engine.problem.layout, engine.problem.model
    start = layout.vector(model).repeat(len(clients), 1)
    work = Work(clients, clients % 2 + 1, clients % 3 + 3, (start, clients))
    models, before = start.clone(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        losses = engine.train(work, models)
    finally:
        torch.set_num_threads(before)
    return models.numpy(), losses


def equal_to_the_reference(case: Problem) -> FastEngine:
    fast = FastEngine(case)
    models, losses = trained(fast)
    expected, wanted = trained(ReferenceEngine(case))
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(losses, wanted, rtol=0, atol=1e-9)
    alone, _ = trained(fast, threads=1)
    np.testing.assert_array_equal(alone, models)  # however many threads share the work
    return fast


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    logs = functional.log_softmax(outputs, dim=-1).gather(-1, targets[:, None])
    return -((1 - logs.exp()).square() * logs).mean()


def looking(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that looks at its numbers: it cannot be batched."""
    return functional.cross_entropy(outputs, targets) * (2.0 if outputs.max().item() > 0 else 1.0)


@pytest.mark.parametrize("loss", [focal, looking])
@pytest.mark.parametrize("batch", [6, 200])  # 200: longer than a block
def test_a_loss_of_the_users_own(loss: Callable[..., Tensor], batch: int) -> None:
    labels = torch.randint(0, 4, (sum(SAMPLES),), generator=torch.Generator().manual_seed(1))
    equal_to_the_reference(problem(loss, labels, batch=batch))


def test_targets_may_be_anything_where_python_computes_the_loss() -> None:
    generator = torch.Generator().manual_seed(1)
    numbers = torch.rand(sum(SAMPLES), 4, generator=generator).double()
    targets = {"numbers": numbers, "sure": torch.rand(sum(SAMPLES), generator=generator).double()}

    def weighted(outputs: Tensor, wanted: dict[str, Tensor]) -> Tensor:
        errors = (outputs - wanted["numbers"]).square().mean(dim=1)
        return (errors * wanted["sure"]).mean()

    equal_to_the_reference(problem(weighted, targets))


@pytest.mark.parametrize("loss", ["ignoring", "all of it", "bce", "huber"])
def test_a_known_loss_in_a_run(loss: str) -> None:
    generator = torch.Generator().manual_seed(1)
    targets = torch.rand(sum(SAMPLES), 4, generator=generator).double()
    own = KNOWN[loss]
    if of_labels(own):
        targets = torch.randint(0, 3, (sum(SAMPLES),), generator=generator)
        targets[::5] = 1
    fast = equal_to_the_reference(problem(own.double() if loss == "all of it" else own, targets))
    assert fast.about()["proof"]["verdict"] == "agrees with autograd"


def test_a_label_that_torch_leaves_out_by_itself() -> None:
    """-100 is left out by every cross-entropy; that was refused as a label out of range."""
    labels = torch.randint(0, 4, (sum(SAMPLES),), generator=torch.Generator().manual_seed(1))
    labels[::7] = -100
    equal_to_the_reference(problem(nn.CrossEntropyLoss(), labels))


def test_a_number_for_each_sample() -> None:
    """A regression whose model ends in squeeze(1), with targets that are numbers."""
    targets = torch.rand(sum(SAMPLES), generator=torch.Generator().manual_seed(1)).double()

    class Number(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network(1)

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x).squeeze(1)

    for loss in (functional.mse_loss, lambda o, t: (o - t).abs().pow(1.5).mean()):
        fast = equal_to_the_reference(problem(loss, targets, Number()))
        outputs = fast.predict(
            fast.problem.layout.vector(fast.problem.model), fast.problem.data.inputs
        )
        assert outputs.shape == (sum(SAMPLES),)


def test_a_loss_that_draws_is_refused() -> None:
    labels = torch.zeros(sum(SAMPLES), dtype=torch.int64)

    def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs + torch.randn_like(outputs), targets)

    with pytest.raises(Unsupported, match="draws random numbers"):
        FastEngine(problem(noisy, labels))


def test_an_error_in_a_loss_reaches_the_user() -> None:
    labels = torch.zeros(sum(SAMPLES), dtype=torch.int64)
    calls = []

    def fails(outputs: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 20:
            raise ValueError("no more")
        return functional.cross_entropy(3 * outputs, targets)

    fast = FastEngine(problem(fails, labels))
    calls.extend([1] * 20)
    with pytest.raises(ValueError, match="no more"):
        trained(fast)
