"""The fast engine: compiled local updates. Each thread trains a client, and adds up its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.methods.method import Affine
from sdfeel.algorithm.methods.rates import RateTable
from sdfeel.engines.engine import Engine, Sums, Work
from sdfeel.engines.fast.compiled import CompiledModel, compile_model
from sdfeel.engines.fast.errors import Unsupported
from sdfeel.engines.fast.losses import IGNORED, LossForm, loss_form
from sdfeel.engines.fast.outer import OuterLoss, check_draws_nothing
from sdfeel.engines.fast.plan import make_plan
from sdfeel.engines.fast.rule import AdamNumbers, Rule
from sdfeel.engines.fast.source import MOST_DRAWN
from sdfeel.engines.idle_cores import free_cores
from sdfeel.engines.problem import Problem
from sdfeel.trees import Pixels, Tree

# What a network is compiled with whose loss Python computes.
OUTER = LossForm("mse")


# Multiplications above which a network with normalisation or branches is left to torch. Processor
# time of one thread beside the plain loop, batch 10, on an AMD EPYC with AVX-512: two convolutions
# with normalisation (2 million) 2.0 times as quick, ResNet-8 (12 million) 1.5 times, a ResNet of
# 165 million 0.8 times.
LARGE = 25e6


class FastEngine(Engine):
    """Make all iterations until the next aggregation in one call, without Python in between.

    It uses as many threads as torch is set to use (`torch.set_num_threads`, OMP_NUM_THREADS).
    """

    name = "fast"
    holds_models = False
    learns = True

    def __init__(self, problem: Problem) -> None:
        if problem.device.type != "cpu":
            raise Unsupported(f"it runs on the processor, not on {problem.device}")
        if problem.layout.names != tuple(name for name, _ in problem.model.named_parameters()):
            raise Unsupported("the model has buffers or frozen parameters")
        if problem.data.fresh:
            raise Unsupported("samples are read anew for every batch (Fresh)")
        if problem.hooks:
            raise Unsupported("a parameter has a gradient hook")
        data = problem.data
        if not isinstance(data.inputs, Tensor | Pixels):
            raise Unsupported("inputs are not one tensor")
        self.problem = problem
        sample = tuple(problem.data.inputs.shape[1:])
        plan = make_plan(problem.model, sample)
        if not plan.is_plain and plan.products > LARGE:
            millions = f"{plan.products / 1e6:.0f} million multiplications a sample"
            raise Unsupported(f"{millions}: others are quicker for so large a network")
        if plan.drops and min(problem.batch_size, int(data.samples.max())) > MOST_DRAWN:
            raise Unsupported(f"dropout in batches of more than {MOST_DRAWN}")
        self._outputs = plan.output_shape
        self._form = _form(problem, self._outputs)
        self._compiled: dict[tuple[Rule, int], CompiledModel] = {}
        self._tables, self._rates = _tables(data.inputs), RateTable(problem.rate)
        self._plain = self._by(self._rule(shifted=False), self._tables)
        self._outer = None if self._form else self._outer_loss()

    def about(self) -> Mapping[str, Any]:
        return {"name": self.name, "proof": self._plain.proof}

    def train(self, work: Work, models: Tensor) -> NDArray[np.float64]:
        return self._call(work, out=(models, np.arange(len(work.clients))))

    def add_up(self, work: Work, sums: Sums) -> NDArray[np.float64]:
        added = (sums.rows, sums.to, sums.weights)
        losses = self._call(work, sums=added, empty=sums.empty[sums.to])
        sums.empty[sums.to] = False
        return losses

    def predict(self, model: Tensor, inputs: Tensor | Pixels) -> Tensor:
        compiled = self._by(self._rule(shifted=False), _tables(inputs))
        if isinstance(inputs, Tensor):
            inputs = inputs.contiguous()
        outputs = compiled.forward(model.contiguous(), inputs, torch.get_num_threads())
        return torch.from_numpy(outputs.reshape(len(outputs), *self._outputs))

    def _rule(self, shifted: bool) -> Rule:
        chain = self.problem.chain
        numbers = chain.in_numbers
        if numbers is None:
            wrong = (m for m in chain.corrections if m.affine is None)
            name = next(wrong, chain.optimizer).name
            raise Unsupported(f"{name} is not affine in the gradient, nor Adam")
        if numbers.betas and not numbers.eps:
            raise Unsupported("adam with eps = 0")
        adam = None
        if numbers.betas:
            adam = AdamNumbers(*numbers.betas, numbers.eps, numbers.decoupled)
        rule, clip = numbers.affine, numbers.clip or 0.0
        return Rule(rule.decay, rule.prox, rule.momentum, rule.nesterov, shifted, clip, adam)

    def _by(self, rule: Rule, tables: int) -> CompiledModel:
        if (rule, tables) not in self._compiled:
            problem = self.problem
            self._compiled[rule, tables] = compile_model(
                problem.model,
                self._form or OUTER,
                tuple(problem.data.inputs.shape[1:]),
                problem.layout.dtype,
                batch_size=problem.batch_size,
                rule=rule,
                tables=tables,
            )
        return self._compiled[rule, tables]

    def _call(self, work: Work, **rows: Any) -> NDArray[np.float64]:
        if len(work.clients) == 0:
            return work.no_losses()
        work.look_up()
        numbers, row_of_client = self.problem.chain.in_numbers, np.arange(len(work.clients))
        assert numbers is not None  # noqa: S101 - `_rule` has refused others
        affine = numbers.affine
        rule = self._rule(bool(affine.shift))
        start, begin = work.start
        rows["start"] = (start.contiguous(), begin)
        rows |= self._shift(work, affine)
        if work.learning is not None:
            rows["control"] = (work.rows[work.learning.row], row_of_client)
            rows["origin"] = rows["start"]
            rows["reach"] = work.learning.reach
            rows["whole"] = np.ones(len(row_of_client), dtype=bool)
        if rule.momentum or rule.adam:
            optimizer = self.problem.chain.optimizer
            for name, row in zip(("velocity", "second", "steps"), optimizer.rows, strict=False):
                if (values := work.rows.get(f"{optimizer.name}.{row}")) is not None:
                    rows[name] = (values, row_of_client)
        free_cores()
        data, first, last = self.problem.data, int(work.first.min()), int(work.last.max())
        return self._by(rule, self._tables).local_updates(
            work.clients,
            self.problem.client_ids[work.clients],
            data.inputs,
            data.targets if self._outer is None else torch.empty(0),
            data.offsets,
            index=data.index,
            seed=self.problem.seed,
            batch_size=self.problem.batch_size,
            first=work.first,
            last=work.last,
            rates=self._rates.between(first, last),
            first_rate=first,
            threads=torch.get_num_threads(),
            outer=self._outer,
            **rows,
        )

    def _outer_loss(self) -> OuterLoss:
        problem = self.problem
        inputs, targets = problem.data.part(slice(2))
        outputs = self.predict(problem.layout.vector(problem.model), inputs)
        check_draws_nothing(problem.loss, outputs, targets)
        return OuterLoss(problem.loss, problem.data.targets, self._outputs)

    def _shift(self, work: Work, affine: Affine) -> dict[str, Any]:
        """Return what is added to gradients: rows where they lie, if the kernels can add them."""
        shift = dict(affine.shift or {})
        if not shift:
            return {}
        each = np.arange(len(work.clients))
        plain = [name for name, by in shift.items() if by == 1]
        of_clients = [name for name in plain if name in work.rows]
        of_servers = [name for name in plain if name in work.shared]
        if len(plain) == len(shift) and len(of_clients) <= 1 and len(of_servers) <= 1:
            shifts = [(work.rows[name], each) for name in of_clients]
            common = [work.shared[name] for name in of_servers]
            return dict(zip(("shift", "common"), [*shifts, *common], strict=False))
        total: Tensor | None = None
        for name, by in shift.items():
            rows = work.rows[name] if name in work.rows else work.laid_out[name]
            total = by * rows if total is None else total.add_(rows, alpha=by)
        return {"shift": (total, each)}


def _form(problem: Problem, outputs: tuple[int, ...]) -> LossForm | None:
    """Return the loss in numbers, if compiled code can compute it from these targets.

    outputs  the shape of a sample's
    """
    targets = problem.data.targets
    if not isinstance(targets, Tensor):
        return None
    try:
        form = loss_form(problem.loss)
    except Unsupported:
        return None
    if form.has_labels:
        if targets.is_floating_point() or targets.ndim > 1:
            return None
        is_ignored = form.ignore is None and bool((targets == IGNORED).any())
        return replace(form, ignore=IGNORED) if is_ignored else form
    fits = targets.is_floating_point() and tuple(targets.shape[1:]) == outputs
    return form if fits else None


def _tables(inputs: Tree) -> int:
    """Return by how many scales bytes become real numbers; 0 where inputs are real numbers."""
    return len(inputs.scale[0]) if isinstance(inputs, Pixels) else 0
