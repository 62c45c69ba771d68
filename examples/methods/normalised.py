"""Normalised gradients: every step is as long as eta_k, whatever the loss.

    w <- w - eta_k g / ||g||

Reductions go over the last dimension: a row is a client, and many come together.
"""

from dataclasses import dataclass

from sdfeel import Method


@dataclass(frozen=True)
class Normalised(Method):
    breaks = {"affine"}

    def gradient(self, g, w, rows, step):
        return g / g.norm(dim=-1, keepdim=True).clamp(min=1e-12)
