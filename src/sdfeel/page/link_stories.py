"""Stories of links that are cut, and of clients that are away."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact
from sdfeel.page.spans import SLACK, Span, away, cuts
from sdfeel.page.story import (
    FOLLOWS,
    SETTLE,
    START,
    Fold,
    Part,
    Story,
    counted,
    in_words,
    named,
    together,
)

__all__ = ["tell_clients", "tell_cuts"]


def tell_cuts(fold: Fold) -> None:
    """Links that were down while both their ends were there."""
    left: list[Span] = []
    for span in cuts(fold.seen):
        story = fold.explains(span.about, span.first, SETTLE)
        if story is not None:
            fold.claim(story, span.seen)
        else:
            left.append(span)
    for group in together(left):
        shared = set.intersection(*(set(span.about) for span in group))
        pairs = [" and ".join(span.about) for span in group]
        is_one_edge = len(shared) == 1 and len(group) > 1
        name = sorted(shared)[0] if shared else ""
        what = f"{name} lost its links to " if is_one_edge else "the link between "
        others = [next(n for n in span.about if n != name) for span in group]
        what += in_words(others) if is_one_edge else in_words(pairs)
        what += "" if is_one_edge else " was cut" if len(group) == 1 else " were cut"
        last = None if any(s.last is None for s in group) else max(s.end for s in group)
        about = tuple(dict.fromkeys(name for span in group for name in span.about))
        story = Story("link", about, what, min(s.first for s in group), last)
        story.parts = [Part("both went on without it" if len(group) == 1 else "all went on")]
        if last is not None:
            story.parts.append(Part("back", last))
        fold.add(story, (each for span in group for each in span.seen))
        story.about = (name,) if is_one_edge else about
        for span in group:
            fold.claim(
                story,
                (
                    each
                    for each in fold.of(*FOLLOWS)
                    if span.holds(each.time, after=SETTLE)
                    and each.edge in span.about
                    and named(each.fact) & set(span.about)
                ),
            )


def tell_clients(fold: Fold) -> None:
    """Clients that left, and edges that none is left of."""
    leaves = [
        span
        for edge, names in fold.homes.items()
        for client in names
        for span in away(fold.seen, edge, client)
    ]
    free = []
    for span in leaves:
        story = fold.explains([fold.home_of[span.about[0]], *span.about], span.first, SETTLE)
        if story is not None and story.kind != "link":
            fold.claim(story, span.seen)
        else:
            free.append(span)
    for group in _overlapping([*_without_clients(fold)]):
        free = _no_clients(fold, group, free)
    by_edge: dict[str, list[Span]] = defaultdict(list)
    for span in free:
        by_edge[fold.home_of[span.about[0]]].append(span)
    for edge, spans in by_edge.items():
        for group in together(spans):
            _left(fold, edge, group)


def _without_clients(fold: Fold) -> Iterator[Span]:
    """Spans in which an edge had no client that takes part; not those of an ordinary start."""
    for each in fold.of(facts.NoClients):
        later = (e for e in fold.seen if e.edge == each.edge and e.time > each.time)
        ends = (facts.Period, facts.Resumed, facts.FreshStart, facts.Finished)
        over = next((e.time for e in later if isinstance(e.fact, ends)), None)
        span = Span((each.edge,), each.time, over, [each])
        met = any(
            isinstance(e.fact, facts.ClientUp) and e.edge == each.edge and e.time < each.time
            for e in fold.seen
        )
        story = fold.explains([each.edge], each.time, SETTLE)
        if story is not None and story.kind != "link":
            fold.claim(story, [each])
        elif met or min(span.end, fold.now) - span.first > START:
            yield span


def _no_clients(fold: Fold, group: list[Span], free: list[Span]) -> list[Span]:
    """Tell of edges without clients; return the absences that have nothing to do with it."""
    edges = list(dict.fromkeys(span.about[0] for span in group))
    edges.sort(key=list(fold.homes).index)
    first = min(span.first for span in group)
    absences = [
        span
        for span in free
        if fold.home_of[span.about[0]] in edges and first - START <= span.first <= first + START
    ]
    last = None if any(s.last is None for s in group) else max(s.end for s in group)
    silent = sorted({name for s in group for e in s.seen for name in _silent(e.fact)})
    why = f"none of its clients answers ({in_words(silent)})" if silent else "it has no client"
    if len(edges) > 1:
        why = "their clients do not answer" if silent else "they have no clients"
    what = f"no period goes by at {in_words(edges)}: {why}"
    story = Story(
        "no-clients", tuple(edges), what, min([first, *(s.first for s in absences)]), last
    )
    story.parts += _guests(fold, absences)
    if last is not None:
        story.parts.append(Part("goes on", last))
    fold.add(story, (each for span in (*group, *absences) for each in span.seen))
    return [span for span in free if span not in absences]


def _left(fold: Fold, edge: str, group: list[Span]) -> None:
    names = list(dict.fromkeys(name for span in group for name in span.about))
    first, last = min(s.first for s in group), max(s.end for s in group)
    who = names[0] if len(names) == 1 else f"{len(names)} clients"
    is_over = last < float("inf")
    story = Story("client", (*names,), f"{who} left {edge}", first, last if is_over else None)
    story.parts += _guests(fold, group)
    if is_over:
        story.parts.append(Part("back", last))
    fold.add(story, (each for span in group for each in span.seen))


def _guests(fold: Fold, spans: Iterable[Span]) -> list[Part]:
    """Where clients were while they were away."""
    went: dict[str, set[str]] = defaultdict(set)
    for span in spans:
        for each in fold.of(facts.ClientUp, facts.ClientDown, facts.PeerRefused):
            if named(each.fact) & set(span.about) and span.holds(each.time):
                if isinstance(each.fact, facts.ClientUp) and each.fact.guest:
                    went[each.edge].add(each.fact.client)
                span.seen.append(each)
    return [Part(f"{counted(names, 'client')} moved to {to}") for to, names in went.items()]


def _silent(fact: Fact) -> Sequence[str]:
    return fact.silent if isinstance(fact, facts.NoClients) else ()


def _overlapping(spans: Iterable[Span]) -> list[list[Span]]:
    """Return spans in groups of those that follow each other or overlap."""
    groups: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.first):
        if groups and span.first <= max(s.end for s in groups[-1]) + SLACK:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups
