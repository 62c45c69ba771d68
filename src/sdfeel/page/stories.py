"""Incidents as stories: what happened in a deployment, out of the facts of all its edges.

An edge that dies is one story, though its neighbours tell of lost links and other edges of guests:
whatever follows from something else is a part of that. What belongs to an ordinary start is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sdfeel.page.edge_stories import (
    tell_certificates,
    tell_clocks,
    tell_disks,
    tell_files,
    tell_liars,
    tell_outage,
)
from sdfeel.page.link_stories import tell_clients, tell_cuts
from sdfeel.page.observed import Seen, Silence, Skew
from sdfeel.page.refusal_stories import (
    tell_neighbours,
    tell_refused_callers,
    tell_singles,
    tell_uploads,
)
from sdfeel.page.spans import outages
from sdfeel.page.story import Fold, Story

__all__ = ["stories"]


def stories(
    seen: Sequence[Seen],
    silences: Iterable[Silence] = (),
    skews: Iterable[Skew] = (),
    homes: Mapping[str, Sequence[str]] = {},
    now: float = float("inf"),
) -> list[Story]:
    """Return the stories of a deployment, the oldest first.

    Args:
        seen: Facts of all edges by their time.
        silences: When edges did not answer.
        skews: When clocks were wrong.
        homes: By edge, the clients that belong to it.
        now: What has lasted for `START` is no longer an ordinary start.
    """
    fold = Fold(seen, homes, now)
    tell_files(fold)
    for outage in outages(seen, silences):
        tell_outage(fold, outage)
    tell_clocks(fold, skews)
    tell_certificates(fold)
    tell_liars(fold)
    tell_disks(fold)
    tell_cuts(fold)
    tell_clients(fold)
    tell_refused_callers(fold)
    tell_uploads(fold)
    tell_neighbours(fold)
    tell_singles(fold)
    return sorted(fold.stories, key=lambda story: story.first)
