"""Stories of edges: they die, are stopped or frozen, and have clocks, files, disks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from sdfeel.deploy.facts import facts
from sdfeel.page.observed import Seen, Skew
from sdfeel.page.spans import SLACK, Outage, Span, clusters
from sdfeel.page.story import (
    GAP,
    SETTLE,
    START,
    Fold,
    Part,
    Story,
    by_subject,
    counted,
    in_words,
    named,
    settle,
)

__all__ = [
    "tell_certificates",
    "tell_clocks",
    "tell_disks",
    "tell_files",
    "tell_liars",
    "tell_outage",
]

DISK_GAP = 12.0  # and these once in ten seconds


def tell_files(fold: Fold) -> None:
    """Edges that have another deployment file; all begin again once they have the same."""
    kinds = (facts.OlderFileHolds, facts.OtherFile, facts.NewerFileHolds, facts.WeightsDiffer)
    news = [*fold.of(*kinds)]
    while news:
        last = _file_end(news, fold.seen)
        mine = [each for each in news if each.time <= last + START]
        edges: dict[str, None] = {}
        for each in mine:
            if each.time > news[0].time + SLACK:
                break
            if isinstance(each.fact, facts.OtherFile):
                edges |= dict.fromkeys(each.fact.edges)
            elif isinstance(each.fact, facts.OlderFileHolds):
                edges[each.edge] = None
        names = sorted(edges or {each.edge for each in mine})
        what = f"{in_words(names)} got another deployment file"
        story = Story("file", tuple(names), what, news[0].time, last, [])
        story.parts.append(Part("the older one held meanwhile"))
        if last == float("inf"):
            story.last = None
        else:
            story.parts.append(Part("all have the same again", last))
            # All edges begin again with it.
            story.about = tuple(sorted({*names, *(e.edge for e in mine)}))
        fold.add(story, mine)
        news = [each for each in news if each.time > last + START]


def tell_outage(fold: Fold, outage: Outage) -> None:
    """An edge that died, was stopped or frozen, with what follows from that."""
    (edge,) = outage.about
    known = fold.explains([edge], outage.first, SETTLE)
    if known is not None and known.kind == "file":
        if known.last is not None and outage.last is not None:
            known.last = max(known.last, outage.last)
        settle(fold, known, edge, outage.first, outage.end)
        return
    kind, what = _how(edge, outage)
    story = Story(kind, (edge,), what, outage.first, outage.last)
    story.parts += _moved(fold, edge, outage)
    if outage.last is not None:
        story.parts.append(Part("back", outage.last))
    if outage.lives is not None:
        story.parts += _lost(fold, edge, outage.lives)
    fold.add(story, outage.seen)
    settle(fold, story, edge, outage.first, outage.end)


def _moved(fold: Fold, edge: str, outage: Outage) -> list[Part]:
    """Where the clients of an edge went that was away."""
    went: dict[str, set[str]] = defaultdict(set)
    for each in fold.seen:
        if isinstance(each.fact, facts.ClientUp) and each.edge != edge:
            is_ours = fold.home_of.get(each.fact.client) == edge
            if is_ours and outage.holds(each.time, after=SETTLE):
                went[each.edge].add(each.fact.client)
    return [Part(f"{counted(names, 'client')} moved to {to}") for to, names in went.items()]


def _lost(fold: Fold, edge: str, lives: tuple[int, int]) -> list[Part]:
    """What an edge has after a restart that it had before."""
    before, after = ([e.fact for e in fold.seen if (e.edge, e.life) == (edge, n)] for n in lives)
    done = max((fact.period for fact in before if isinstance(fact, facts.Period)), default=None)
    adopted = [fact for fact in after if isinstance(fact, facts.Adopted)]
    if adopted:
        return [Part(f"it went on from the model of {adopted[0].peer}")]
    if any(isinstance(fact, facts.FreshStart) for fact in after):
        return [Part("its checkpoints were gone")] if done else []
    resumed = [fact.period for fact in after if isinstance(fact, facts.Resumed)]
    if not resumed or done is None:
        return []
    lost = done - resumed[0]
    return [Part(f"{counted(range(lost), 'period')} lost" if lost > 0 else "nothing lost")]


def tell_clocks(fold: Fold, skews: Iterable[Skew]) -> None:
    for skew in skews:
        ahead = "ahead" if skew.ahead > 0 else "behind"
        what = f"the clock of {skew.edge} was {_long(abs(skew.ahead))} {ahead}"
        story = fold.add(Story("clock", (skew.edge,), what, skew.began, skew.ended))
        if skew.ended is not None:
            story.parts.append(Part("right again", skew.ended))
        settle(fold, story, skew.edge, skew.began, story.last or float("inf"))


def tell_certificates(fold: Fold) -> None:
    """Certificates of edges that end, or are not let in; with the links that go down."""
    ends: dict[str, Span] = {}
    kinds = (facts.CertificateEnds, facts.CertificateExpired, facts.CertificateRenewed)
    for each in fold.of(*kinds):
        span = ends.get(each.edge)
        if isinstance(each.fact, facts.CertificateRenewed):
            if span is not None:
                span.last = each.time
                _certificate(fold, ends.pop(each.edge), each)
        elif span is None:
            ends[each.edge] = Span((each.edge,), each.time, None, [each])
        else:
            span.seen.append(each)
    for span in ends.values():
        _certificate(fold, span)
    expelled = [e for e in fold.of(facts.PeerRefused) if e.fact.kind in ("expired", "revoked")]  # type: ignore[attr-defined]
    for name, spans in by_subject(expelled, lambda fact: fact.caller).items():
        for span in clusters(spans, GAP):
            node = name.partition("/")[2] or name
            known = fold.explains([node], span.first)
            story = known or _expelled(fold, node, span)
            fold.claim(story, span.seen)
            if story.about[0] in fold.homes:
                settle(fold, story, node, story.first, story.last or float("inf"))


def _certificate(fold: Fold, span: Span, renewed: Seen | None = None) -> None:
    (edge,) = span.about
    last = span.seen[-1].fact
    has_ended = isinstance(last, facts.CertificateExpired)
    until = last.until if isinstance(last, facts.CertificateEnds) else ""
    what = f"the certificate of {edge} " + ("ended" if has_ended else f"ends on {until}")
    story = Story("certificate", (edge,), what, span.first, span.last)
    if renewed is not None:
        story.parts.append(Part("renewed", renewed.time))
    fold.add(story, [*span.seen, *([renewed] if renewed else [])])
    if has_ended:
        expired = next(e for e in span.seen if isinstance(e.fact, facts.CertificateExpired))
        settle(fold, story, edge, expired.time, span.end)


def _expelled(fold: Fold, node: str, span: Span) -> Story:
    """A node whose certificate others do not take; over when somebody takes it again."""
    came = (
        each.time
        for each in fold.seen
        if each.time > span.end
        and isinstance(each.fact, facts.LinkUp | facts.ClientUp)
        and (each.edge == node or node in named(each.fact))
    )
    back = next(came, None)
    word = "revoked" if "revoked" in {e.fact.kind for e in span.seen} else "has ended"  # type: ignore[attr-defined]
    what = f"the certificate of {node} {'was ' if word == 'revoked' else ''}{word}"
    story = Story("certificate", (node,), what, span.first, back)
    tellers = sorted({each.edge for each in span.seen})
    story.parts.append(Part(f"turned away by {in_words(tellers)}"))
    if back is not None:
        story.parts.append(Part("let in again", back))
    return fold.add(story)


def tell_liars(fold: Fold) -> None:
    """Edges that have contradicted themselves."""
    for edge, spans in by_subject([*fold.of(facts.Contradiction)], lambda fact: fact.edge).items():
        (span,) = clusters(spans, float("inf"))
        tellers = sorted({each.edge for each in span.seen})
        what = f"{edge} signed two states that contradict each other"
        story = Story("liar", (edge,), what, span.first, None)
        story.parts = [Part(f"{in_words(tellers)} {_do(tellers, 'use')} its links no more")]
        fold.add(story, span.seen)
        settle(fold, story, edge, span.first, float("inf"))


def tell_disks(fold: Fold) -> None:
    """Edges whose disk takes no checkpoint, or takes too long."""
    begins, ends = (facts.DiskProblem, facts.DiskSlow), (facts.DiskRelief, facts.DiskCaughtUp)
    spans: dict[tuple[str, int], list[Span]] = defaultdict(list)
    for each in fold.of(*begins, *ends):
        mine = spans[each.edge, each.life]
        if isinstance(each.fact, ends):
            if mine:
                mine[-1].last = each.time
                mine[-1].seen.append(each)
        elif mine and each.time - mine[-1].end < DISK_GAP:
            mine[-1].last = None
            mine[-1].seen.append(each)
        else:
            mine.append(Span((each.edge,), each.time, None, [each]))
    for (edge, life), mine in spans.items():
        for span in mine:
            _disk(fold, edge, life, span)


def _disk(fold: Fold, edge: str, life: int, span: Span) -> None:
    last = span.last
    if last is None:  # it may have ended with the edge
        later = (e.time for e in fold.seen if e.edge == edge and e.life != life)
        last = next((time for time in later if time > span.first), None)
    reasons = [e.fact.reason for e in span.seen if isinstance(e.fact, facts.DiskProblem)]
    if reasons:
        what = f"{edge} paused: its disk takes no checkpoint ({reasons[0]})"
    else:
        what = f"the disk of {edge} was too slow, so it paused"
    story = Story("disk", (edge,), what, span.first, last)
    if span.last is not None:
        story.parts = [Part("goes on", span.last), Part("nothing lost")]
    fold.add(story, span.seen)
    fold.claim(
        story,
        (
            each
            for each in fold.of(facts.Missed, facts.LeftOut, facts.Exchange, facts.Jump)
            if span.holds(each.time, after=SETTLE)
            and (each.edge == edge or edge in named(each.fact))
        ),
    )


def _file_end(news: Sequence[Seen], seen: Sequence[Seen]) -> float:
    """Return when all edges had the same file: they say so, or have begun again without a word."""
    newer = [each.time for each in news if isinstance(each.fact, facts.NewerFileHolds)]
    if newer:
        return newer[0]
    still: set[str] = set()
    for each in seen:
        if isinstance(each.fact, facts.OlderFileHolds | facts.OtherFile):
            names = getattr(each.fact, "without", None) or getattr(each.fact, "edges", None)
            (still.add if names else still.discard)(each.edge)
        elif isinstance(each.fact, facts.WeightsDiffer):
            still.add(each.edge)
        elif isinstance(each.fact, facts.Resumed | facts.FreshStart | facts.Finished):
            still.discard(each.edge)
        if not still and each.time > news[0].time:
            return each.time
    return float("inf")


def _how(edge: str, outage: Outage) -> tuple[str, str]:
    if outage.has_left:
        return "stopped", f"{edge} was stopped"
    if outage.lives is not None or outage.cause in ("nothing-listens", ""):
        return "died", f"{edge} died"
    if outage.cause == "timeout":
        return "frozen", f"{edge} was frozen, overloaded or cut off"
    return "unreachable", f"{edge} could not be asked"


def _do(names: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(names) == 1 else verb


def _long(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"
