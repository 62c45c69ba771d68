"""A compiled network proves itself against autograd before it is used.

A compiler may be wrong for one processor and right for another (gcc 12 was, with AVX-512), so the
tests of this project say nothing about a machine that they never saw. When a network is compiled
there for the first time, its gradients and three consecutive updates, eq. (2), are compared with
autograd's in float64, for batches below, at and above every length that the kernels tell apart.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from sdfeel.algorithm.randomness import MODEL, seeds
from sdfeel.trees import Pixels, ready

from .losses import LossForm
from .outer import OuterLoss
from .rule import AdamNumbers, Rule

if TYPE_CHECKING:
    from .compiled import CompiledModel
    from .compiler import Toolchain

AGREES = "agrees with autograd"

STEPS = 3
# Of dropout in each of these updates: those of client 0 from iteration 1 on, where the seed is 0.
SEEDS = seeds(0, np.zeros(1, np.int64), np.arange(1, STEPS + 1), MODEL)[0].tolist()
STRIDE = 0.05  # what the first update moves the weight that it moves most
# Largest error, as a part of the largest value of the same parameter; in float32 what an update
# moves is small beside what it moves, and only its leading digits are left.
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-9}
# In float32 a pre-activation may come to lie on the other side of ReLU's kink, or another pixel win
# a max-pool, by rounding alone. Batches repeat a few different inputs, which makes that rare, and a
# batch that disagrees is drawn again: a wrong kernel is wrong for every draw.
INPUTS = 4
DRAWS = {torch.float32: 4, torch.float64: 1}


@dataclass(frozen=True)
class Proof:
    """The result of comparing a compiled network with autograd on this machine; kept beside it."""

    compiler: str
    version: str
    target: str
    optimise: str
    verdict: str  # AGREES, or what is wrong
    checks: tuple[int, ...]  # the batch sizes that were compared

    @classmethod
    def of(cls, toolchain: Toolchain) -> Proof:
        """Nothing is known yet."""
        named = toolchain.name, toolchain.version, toolchain.target, toolchain.optimise
        return cls(*named, AGREES, ())

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any]) -> Proof | None:
        """Read the proof that `notes` hold; None if another version wrote them."""
        try:
            fields = {name: notes[name] for name in cls.__dataclass_fields__}
            return cls(**{**fields, "checks": tuple(fields["checks"])})
        except (KeyError, TypeError):
            return None

    @property
    def notes(self) -> dict[str, Any]:
        return {**asdict(self), "checks": list(self.checks)}

    @property
    def agrees(self) -> bool:
        return self.verdict == AGREES

    @property
    def refusal(self) -> str:
        """Say in one line which compiler and target failed."""
        return (
            f"{self.compiler} ({self.version}) compiles this network wrongly for {self.target} "
            f"at {self.optimise}: {self.verdict}"
        )

    def extended(self, model: CompiledModel, module: nn.Module, batch_size: int | None) -> Proof:
        """Return the proof with the batches that are lacking for a run of `batch_size`."""
        wanted = batches_to_check(model.block, model.lanes, model.at_once, batch_size)
        missing = [batch for batch in wanted if batch not in self.checks]
        fault = find_fault(model, module, missing)
        checks = tuple(sorted({*self.checks, *missing}))
        return replace(self, verdict=fault or self.verdict, checks=checks)


def batches_to_check(block: int, lanes: int, at_once: int, batch_size: int | None) -> list[int]:
    """Return batch sizes below, at and above all lengths that kernels tell apart, and the run's.

    at_once  how many samples a walk of a linear layer pays for
    """
    sizes = {1, *(size + d for size in (lanes, 2 * lanes, at_once, block) for d in (-1, 0, 1))}
    if batch_size is not None:
        # Whole blocks and what is left over: a second block is worked on as the hundredth is.
        sizes.add(batch_size if batch_size <= 2 * block else 2 * block + batch_size % block)
    return sorted(sizes)


@dataclass(frozen=True)
class _Case:
    weights: NDArray[Any]
    inputs: Tensor | Pixels
    targets: Tensor
    rule: Rule
    shift: NDArray[Any]  # of this client, and what is common to several
    common: NDArray[Any] | None


def _draw(model: CompiledModel, module: nn.Module, batch: int, seed: int) -> _Case:
    """Weights of every parameter's own scale, inputs with ties as pictures have them."""
    generator = torch.Generator().manual_seed(1000 * seed + batch)

    def uniform(*shape: int) -> Tensor:
        return 2 * torch.rand(*shape, generator=generator, dtype=model.dtype) - 1

    weights = [
        uniform(p.numel()) * (1.5 * (p.shape[0] / p.numel()) ** 0.5 if p.dim() > 1 else 0.3)
        for p in module.parameters()
    ]
    inputs = uniform(INPUTS, *model.sample_shape) * 1.7
    inputs = torch.where(uniform(*inputs.shape) < -0.4, torch.zeros_like(inputs), inputs)
    which = torch.randint(INPUTS, (batch,), generator=generator)
    given = inputs[which].contiguous()
    drawn = given if not model.tables else _bytes(given, model.tables, model.dtype)
    targets = _targets(model, batch, uniform, generator)
    terms = model.rule.terms
    rule = Rule(
        weight_decay=0.3 if terms.decay else 0.0,
        prox=0.2 if terms.decay and terms.pull else 0.0,
        momentum=0.9 if terms.momentum else 0.0,
        nesterov=terms.momentum and batch % 2 == 0,
        shifted=terms.pull,
        clip=1.0 if terms.clip else 0.0,  # of the norm, as is set once the gradient is known
        adam=AdamNumbers(0.8, 0.95, 1e-3, 0.1) if terms.adam else None,
    )
    shift, common = 0.1 * uniform(2, 1, model.parameters).numpy()
    parts = shift, common if terms.pull and batch % 2 else None
    return _Case(torch.cat(weights).numpy(), drawn, targets, rule, *parts)


def _targets(
    model: CompiledModel, batch: int, uniform: Callable[..., Tensor], generator: torch.Generator
) -> Tensor:
    """Labels, some of which are left out where one is; or numbers, from 0 to 1 as parts are."""
    loss = model.loss
    if not loss.has_labels:
        values = uniform(batch, model.outputs)
        return values if loss.kind != "bce" else (values + 1) / 2
    labels = torch.randint(model.outputs, (batch,), generator=generator)
    if loss.ignore is not None:
        labels[1::3] = loss.ignore
    return labels


def _bytes(inputs: Tensor, tables: int, dtype: torch.dtype) -> Pixels:
    """Bytes that stand for about the same, by a scale of its own in every channel."""
    values = (inputs * 75 + 128).to(torch.uint8)
    mean = tuple(0.5 + 0.01 * c for c in range(tables))
    std = tuple(0.3 + 0.01 * c for c in range(tables))
    is_single = tables == 1
    return Pixels(values, mean[0] if is_single else mean, std[0] if is_single else std, dtype)


class _Autograd:
    """The network in float64, as torch computes it, with weights given as one vector."""

    def __init__(self, module: nn.Module, loss: LossForm) -> None:
        self._module, self._loss = copy.deepcopy(module).train(), loss
        self._shapes = {name: p.shape for name, p in module.named_parameters()}
        self.sizes = [shape.numel() for shape in self._shapes.values()]

    def gradient(self, weights: NDArray[Any], case: _Case, step: int) -> NDArray[np.float64]:
        parts = torch.split(torch.from_numpy(weights.astype(np.float64)), self.sizes)
        named = {
            name: part.reshape(shape).requires_grad_()
            for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }
        targets = case.targets if case.targets.dtype == torch.int64 else case.targets.double()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(SEEDS[step])
            outputs = functional_call(self._module, named, ready(case.inputs).double())
        value = self._loss(outputs, targets)
        gradients = torch.autograd.grad(value, list(named.values()), allow_unused=True)
        flat = [
            torch.zeros(size, dtype=torch.float64) if g is None else g.reshape(-1)
            for g, size in zip(gradients, self.sizes, strict=True)
        ]
        return torch.cat(flat).numpy()


def _error(gradient: NDArray[Any], wanted: NDArray[np.float64], sizes: Sequence[int]) -> float:
    """The largest error of any parameter, as a part of its largest value; NaN stays NaN."""
    starts = np.cumsum([0, *sizes])[:-1]
    errors = np.maximum.reduceat(np.abs(gradient - wanted), starts)
    scales = np.maximum.reduceat(np.abs(wanted), starts)
    return float(np.max(errors / np.maximum(scales, 1e-2 * scales.max() + 1e-300)))


def _errors(model: CompiledModel, reference: _Autograd, case: _Case) -> Iterator[tuple[str, float]]:
    """Yield what is compared, and by how much it is off."""
    batch = len(case.inputs)
    wanted = reference.gradient(case.weights, case, 0)
    _, gradient = model.gradient(case.weights, case.inputs, case.targets, SEEDS[0])
    yield "the gradient", _error(gradient, wanted, reference.sizes)
    largest = max(float(np.abs(wanted).max()), 1e-6)
    case = replace(case, rule=_suited(case.rule, largest, float(np.linalg.norm(wanted))))
    rate = STRIDE if case.rule.adam else STRIDE / largest
    moved = _moved(reference, case, wanted, rate)
    rows, sums = case.weights[None].copy(), case.weights[None].copy()
    control, origin = case.shift.copy(), case.weights[None] / 2
    here, zero = np.zeros(1, np.int64), np.zeros(1, np.int64)
    rule = case.rule
    learns: dict[str, Any] = {"shift": (case.shift, here)} if rule.shifted else {}
    if rule.shifted and case.common is not None:
        whole = np.ones(1, dtype=bool)
        learns |= {"common": (case.common, here), "reach": 2.0, "whole": whole}
        learns |= {"control": (control, here), "origin": (origin, here)}
    model.local_updates(
        here, zero, case.inputs, case.targets, np.array([0, batch]),
        seed=0, batch_size=batch, first=here + 1, last=here + STEPS,
        rates=np.full(STEPS, rate), first_rate=1, start=(rows, here), out=(rows, here),
        rule=rule, sums=(sums, here, np.full(1, 0.5)), **learns,
    )  # fmt: skip
    yield (
        f"{STEPS} updates",
        _error(rows[0] - case.weights.astype(np.float64), moved, reference.sizes),
    )
    if model.loss == LossForm("mse"):  # which stands in for a loss that Python computes
        again = case.weights[None].copy()
        model.local_updates(
            here, zero, case.inputs, case.targets, np.array([0, batch]),
            seed=0, batch_size=batch, first=here + 1, last=here + STEPS,
            rates=np.full(STEPS, rate), first_rate=1, start=(again, here), out=(again, here),
            rule=rule, outer=OuterLoss(model.loss, case.targets, (model.outputs,)),
            shift=learns.get("shift"), common=learns.get("common"),
        )  # fmt: skip
        off = _error(again[0] - case.weights.astype(np.float64), moved, reference.sizes)
        yield f"{STEPS} updates by a loss of Python", off
    model_now, begun = rows[0].astype(np.float64), case.weights.astype(np.float64)
    mean = begun + 0.5 * model_now
    yield "a sum", _error(sums[0], mean, reference.sizes)
    if "control" in learns:
        gained = case.shift[0].astype(np.float64) + (model_now - mean) / 2
        yield "what a correction learns", _error(control[0], gained, reference.sizes)


def _suited(rule: Rule, largest: float, norm: float) -> Rule:
    """Return the rule with numbers of the gradient's size: one that clips, and no division by 0."""
    adam = replace(rule.adam, eps=largest) if rule.adam else None
    return replace(rule, clip=max(0.7 * norm, 1e-6) if rule.clip else 0.0, adam=adam)


def _moved(
    reference: _Autograd,
    case: _Case,
    gradient: NDArray[np.float64],
    rate: float,
) -> NDArray[np.float64]:
    """Return what the updates of `Rule` move."""
    rule, anchor = case.rule, case.weights.astype(np.float64)
    w, v, q = anchor, np.zeros_like(anchor), np.zeros_like(anchor)
    for step in range(STEPS):
        g = gradient if step == 0 else reference.gradient(w, case, step)
        if rule.clip:
            g = g * min(1.0, rule.clip / (float(np.linalg.norm(g)) + 1e-6))
        g = g + rule.weight_decay * w + rule.prox * (w - anchor)
        if rule.shifted:
            g = g + case.shift[0] + (0 if case.common is None else case.common[0])
        if rule.adam:
            by, t = rule.adam, step + 1
            v, q = by.beta1 * v + (1 - by.beta1) * g, by.beta2 * q + (1 - by.beta2) * g * g
            root = np.sqrt(q / (1 - by.beta2**t))
            w = w - rate * (v / (1 - by.beta1**t) / (root + by.eps) + by.decoupled * w)
            continue
        v = rule.momentum * v + g
        w = w - rate * (g + rule.momentum * v if rule.nesterov else v)
    moved: NDArray[np.float64] = w - anchor
    return moved


def _fault(model: CompiledModel, module: nn.Module, reference: _Autograd, batch: int) -> str | None:
    fault = None
    for seed in range(DRAWS[model.dtype]):
        case = _draw(model, module, batch, seed)
        for what, error in _errors(model, reference, case):
            if not error <= TOLERANCE[model.dtype]:  # NaN is wrong too
                fault = f"{what} of a batch of {batch} in {model.dtype} is off by {error:.1g}"
                break
        else:
            return None
    return fault


def find_fault(model: CompiledModel, module: nn.Module, batches: Iterable[int]) -> str | None:
    """Say what the compiled network gets wrong; None if it agrees with autograd on `module`."""
    reference = _Autograd(module, model.loss)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # batches this small: more threads would wait for one another
    try:
        faults = (_fault(model, module, reference, batch) for batch in batches)
        return next((fault for fault in faults if fault), None)
    finally:
        torch.set_num_threads(threads)
