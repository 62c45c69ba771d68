"""A server mixes with its neighbours at its turn; models of other ranks are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from sdfeel.algorithm.turns import Flow
from sdfeel.simulation.ranks import Ranks

__all__ = ["carry_out"]


def carry_out(
    flow: Flow, models: Tensor, servers: Sequence[int], rank_of: Mapping[int, int], ranks: Ranks
) -> None:
    """It moves towards its neighbours, and they may towards it; rows of `models` are `servers`."""
    near = _near(flow, models, servers, rank_of, ranks)
    dtype, first = models.dtype, servers[0]
    if flow.server in near:
        own = near[flow.server]
        for j, weight in zip(flow.neighbours, flow.outward, strict=True):
            if weight and j in servers:
                moved = near[j] + weight * (own - near[j])
                models[j - first] = moved.to(dtype)
    if flow.server in servers:
        own = near[flow.server]
        moved = own.clone()
        for j, weight in zip(flow.neighbours, flow.inward, strict=True):
            moved += weight * (near[j] - own)
        models[flow.server - first] = moved.to(dtype)


def _near(
    flow: Flow, models: Tensor, servers: Sequence[int], rank_of: Mapping[int, int], ranks: Ranks
) -> dict[int, Tensor]:
    """The models that this rank needs for it, by server, in double precision."""
    rank, first, size = ranks.rank, servers[0], models.shape[1]
    asked = (flow.server, *flow.neighbours)
    found = {d: models[d - first].double().clone() for d in asked if d in servers}
    home = rank_of[flow.server]
    others = sorted({rank_of[j] for j in flow.neighbours} - {home})
    if not others or (rank != home and rank not in others):
        return found
    theirs = [home] if rank == home else [rank]
    out: list[tuple[int, Tensor]] = []
    into: list[tuple[int, Tensor]] = []
    for other in others if rank == home else theirs:
        side = [j for j in flow.neighbours if rank_of[j] == other]
        rows = torch.empty(len(side), size, dtype=torch.float64)
        own = torch.empty(1, size, dtype=torch.float64)
        if rank == home:
            out.append((other, found[flow.server][None].contiguous()))
            into.append((other, rows))
        else:
            out.append((home, torch.stack([found[j] for j in side])))
            into.append((home, own))
    ranks.exchange(out, into)
    for other, rows in into:
        if rank == home:
            side = [j for j in flow.neighbours if rank_of[j] == other]
            found |= dict(zip(side, rows, strict=True))
        else:
            found[flow.server] = rows[0]
    return found
