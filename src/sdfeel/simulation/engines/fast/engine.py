"""The fast engine: compiled local updates, a client a thread, added up as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.local import Rows
from sdfeel.algorithm.rates import RateTable
from sdfeel.simulation.engines.engine import Indices, Shift, SummingEngine, Sums, Work
from sdfeel.simulation.engines.fast.compiled import CompiledModel, compile_model
from sdfeel.simulation.engines.fast.errors import Unsupported
from sdfeel.simulation.engines.fast.rule import AffineRule
from sdfeel.simulation.engines.idle_cores import free_cores
from sdfeel.simulation.problem import Problem
from sdfeel.trees import Pixels, Tree

__all__ = ["FastEngine"]


class FastEngine(SummingEngine):
    """All iterations until the next aggregation in one call, without Python in between.

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
        if not isinstance(data.inputs, Tensor | Pixels) or not isinstance(data.targets, Tensor):
            raise Unsupported("inputs or targets are not one tensor")
        self.problem = problem
        self._compiled: dict[tuple[AffineRule, int], CompiledModel] = {}
        self._tables, self._rates = _tables(data.inputs), RateTable(problem.rate)
        self._plain = self._by(self._rule(shifted=False), self._tables)

    def about(self) -> Mapping[str, Any]:
        return {"name": self.name, "proof": self._plain.proof}

    def local_updates(self, models: Tensor, kept: Rows | None, work: Work) -> NDArray[np.float64]:
        own = np.arange(len(work.clients))
        return self._call(work, kept, start=(models, own), out=(models, own))

    def add_up(
        self, start: Tensor, begin: Indices, kept: Rows | None, work: Work, sums: Sums
    ) -> NDArray[np.float64]:
        added = (sums.rows, sums.to, sums.weights)
        begun = (start.contiguous(), begin)
        losses = self._call(work, kept, start=begun, sums=added, empty=sums.empty[sums.to])
        sums.empty[sums.to] = False
        return losses

    def predict(self, model: Tensor, inputs: Tensor | Pixels) -> Tensor:
        compiled = self._by(self._rule(shifted=False), _tables(inputs))
        if isinstance(inputs, Tensor):
            inputs = inputs.contiguous()
        return torch.from_numpy(
            compiled.forward(model.contiguous(), inputs, torch.get_num_threads())
        )

    def _rule(self, shifted: bool) -> AffineRule:
        local, affine = self.problem.local, self.problem.local.affine
        if affine is None:
            raise Unsupported(f"the local rule {local} is not affine in the gradient")
        if local.clip is not None:
            raise Unsupported("clipping needs the whole gradient before the first weight moves")
        nesterov = affine.nesterov and affine.momentum > 0
        return AffineRule(local.weight_decay, local.prox, affine.momentum, nesterov, shifted)

    def _by(self, rule: AffineRule, tables: int) -> CompiledModel:
        if (rule, tables) not in self._compiled:
            problem = self.problem
            self._compiled[rule, tables] = compile_model(
                problem.model,
                problem.loss,
                tuple(problem.data.inputs.shape[1:]),
                problem.layout.dtype,
                batch_size=problem.batch_size,
                rule=rule,
                tables=tables,
            )
        return self._compiled[rule, tables]

    def _call(self, work: Work, kept: Rows | None, **rows: Any) -> NDArray[np.float64]:
        if len(work.clients) == 0:
            return work.no_losses()
        rule = self._rule(work.added is not None)
        own = np.arange(len(work.clients))
        if rule.prox and work.anchor is not None:
            rows["anchor"] = (work.anchor, own)
        if isinstance(work.added, Shift):
            rows["shift"] = (work.added.rows, work.added.row)
            if work.added.common is not None:
                rows["common"] = (work.added.common, work.added.of)
        elif work.added is not None:
            rows["shift"] = (work.added, own)
        learned = work.learned
        if learned is not None:
            rows["control"] = (learned.rows, learned.row)
            rows["origin"] = (learned.origin.contiguous(), learned.begun)
            rows["reach"], rows["whole"] = learned.reach, learned.whole
        if rule.momentum and kept is not None:
            (velocity,) = kept.values()
            rows["velocity"] = (velocity, own)
        free_cores()
        data, first, last = self.problem.data, int(work.first.min()), int(work.last.max())
        return self._by(rule, self._tables).local_updates(
            work.clients,
            self.problem.client_ids[work.clients],
            data.inputs,
            data.targets,
            data.offsets,
            seed=self.problem.seed,
            batch_size=self.problem.batch_size,
            first=work.first,
            last=work.last,
            rates=self._rates.between(first, last),
            first_rate=first,
            threads=torch.get_num_threads(),
            **rows,
        )


def _tables(inputs: Tree) -> int:
    """By how many scales inputs become real numbers; 0: they are."""
    return len(inputs.scale[0]) if isinstance(inputs, Pixels) else 0
