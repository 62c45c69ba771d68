"""A local rule or correction of one's own, tried on a few numbers before anything is trained."""

from __future__ import annotations

import torch
from torch import Tensor

from sdfeel.algorithm.correction import Correction
from sdfeel.algorithm.local import LOCAL_RULES, LocalRule, Rows
from sdfeel.errors import InputError

__all__ = ["check_correction", "check_rule"]

ROWS, WIDTH, STEPS, ETA = 2, 5, 3, 0.1


def check_rule(rule: LocalRule) -> None:
    """Refuse a rule that is not element by element, or whose `affine` is not what `step` does.

    Engines hand it one client's vector, many clients' as rows, or a piece of a vector.
    """
    if type(rule) in LOCAL_RULES.values():
        return
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)
    pushes = torch.randn(STEPS, ROWS, WIDTH, generator=generator, dtype=torch.float64)
    stacked = _carried_out(rule, start, pushes)
    each = [_carried_out(rule, start[row], pushes[:, row]) for row in range(ROWS)]
    halves = [
        _carried_out(rule, start[:, cut], pushes[..., cut]) for cut in (slice(2), slice(2, 5))
    ]
    alike = torch.allclose(stacked, torch.stack(each), rtol=1e-9)
    if not (alike and torch.allclose(stacked, torch.cat(halves, dim=1), rtol=1e-9)):
        raise InputError(
            "local",
            rule,
            "its step must do the same to every element, whatever stands beside it: a vector comes "
            "alone, in rows with other clients' or in pieces",
        )
    if rule.affine is not None and not torch.allclose(stacked, _affine(rule, start, pushes)):
        raise InputError(
            "local", rule, "its `affine` is not what its `step` does; correct or leave out `affine`"
        )


def check_correction(correction: Correction | None) -> None:
    """Refuse steps that are not linear, row by row: they are asked for w_i and wbar_d apart."""
    if correction is None or type(correction) is Correction:
        return
    generator = torch.Generator().manual_seed(0)
    one, two = (torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64) for _ in "ab")
    for step in (correction.of_clients, correction.of_servers):
        found: object = step(one - two, ETA)
        if not isinstance(found, Tensor) or found.shape != one.shape:
            raise InputError(
                "correction", correction, f"{step.__name__} must give back a row for each it gets"
            )
        if not torch.allclose(found, step(one, ETA) - step(two, ETA)):
            raise InputError(
                "correction", correction, f"{step.__name__} must be linear in how far models moved"
            )


def _carried_out(rule: LocalRule, start: Tensor, pushes: Tensor) -> Tensor:
    w = start.clone()
    kept: Rows = {name: torch.zeros_like(w) for name in rule.keeps}
    for g in pushes:
        try:
            rule.update(w, g.clone(), kept, ETA, anchor=start)
        except KeyError as missing:
            raise InputError(
                "local", rule, f"uses the row {missing} that it does not name in `keeps`"
            ) from None
    return w


def _affine(rule: LocalRule, start: Tensor, pushes: Tensor) -> Tensor:
    affine = rule.affine
    assert affine is not None  # noqa: S101 - asked before
    w, v = start.clone(), torch.zeros_like(start)
    for push in pushes:
        g = push + rule.weight_decay * w + rule.prox * (w - start)
        v = affine.momentum * v + g
        w = w - ETA * (g + affine.momentum * v if affine.nesterov else v)
    return w
