"""Stories of what is not taken: callers, models and messages; and of single troubles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact
from sdfeel.page.observed import Seen
from sdfeel.page.spans import Span, clusters
from sdfeel.page.story import GAP, SETTLE, Fold, Story, by_subject, counted, in_words

__all__ = ["not_taken", "tell_neighbours", "tell_refused_callers", "tell_singles", "tell_uploads"]

GAP_CLIPPED = 150.0  # these are told once a minute
OFTEN, FAR = 3, 3.0  # so often in a row, and so many times too long
ROWS = 100
# Told once, and worth a story of their own where nothing else explains them.
SINGLE: dict[type[Fact], str] = {
    facts.CheckpointDamaged: "found a damaged checkpoint and went on from an older one",
    facts.EvaluationFailed: "cannot evaluate its model any more",
    facts.RecordProblem: "cannot write its run folder",
    facts.RevocationList: "has no good revocation list",
    facts.LogLost: "has lost lines of its log",
    facts.Unsettled: "ended without a neighbour's word about an exchange",
    facts.CorrectionBegunAnew: "began the clients' corrections anew",
}
HANDSHAKES = {
    "expired": "by a certificate that has ended, or by a clock that is wrong",
    "not-yet-valid": "by a certificate that is not valid yet, or by a clock that is wrong",
    "unknown-ca": "by a certificate of another authority",
    "no-certificate": "without a certificate",
    "not-tls": "in plain text",
}


def tell_refused_callers(fold: Fold) -> None:
    """Callers that are not let in, and handshakes that fail."""
    for name, spans in by_subject([*fold.of(facts.PeerRefused)], lambda fact: fact.caller).items():
        node = name.partition("/")[2] or "a caller"
        for span in clusters(spans, GAP):
            fact: Any = span.seen[-1].fact
            if fact.kind == "twice":  # its process before was not known to be dead
                continue
            tellers = sorted({each.edge for each in span.seen})
            what = f"{in_words(tellers)} turned {node} away: {fact.reason}"
            _known_or(fold, Story("turned-away", (node,), what, span.first, span.last), span)
    for reason, spans in by_subject([*fold.of(facts.HandshakeRefused)], lambda f: f.reason).items():
        for span in clusters(spans, GAP):
            tellers = sorted({each.edge for each in span.seen})
            if reason in ("caller-left", "other") or fold.explains(tellers, span.first, GAP):
                continue
            count = sum(each.fact.count for each in span.seen)  # type: ignore[attr-defined]
            how = HANDSHAKES.get(reason, f"({reason})")
            what = (
                f"{counted(range(count), 'connection')} to {in_words(tellers)} failed, tried {how}"
            )
            fold.add(Story("handshake", tuple(tellers), what, span.first, span.last), span.seen)
    refused = [e for e in fold.of(facts.DialFailed) if e.fact.kind]  # type: ignore[attr-defined]
    for peer, spans in by_subject(refused, lambda fact: fact.peer).items():
        for span in clusters(spans, GAP):
            fact = span.seen[-1].fact
            tellers = sorted({each.edge for each in span.seen})
            what = f"{in_words(tellers)} cannot work with {peer}: {fact.reason}"
            about = (peer, *tellers)
            _known_or(fold, Story("turned-away", about, what, span.first, span.last), span)


def tell_uploads(fold: Fold) -> None:
    """Models of clients that were refused, or scaled down."""
    refused = [e for e in fold.of(facts.UploadRefused) if e.fact.kind != "elsewhere"]  # type: ignore[attr-defined]
    for client, spans in by_subject(refused, lambda fact: fact.client).items():
        for span in clusters(spans, GAP):
            count = sum(each.count for each in span.seen)
            fact: Any = span.seen[-1].fact
            edges = in_words(sorted({each.edge for each in span.seen}))
            what = f"{edges} refused {counted(range(count), 'model')} of {client}: {fact.reason}"
            fold.add(Story("refused", (client,), what, span.first, span.last), span.seen)
    for client, spans in by_subject([*fold.of(facts.Clipped)], lambda fact: fact.client).items():
        for span in clusters(spans, GAP_CLIPPED):
            lengths = [_length(each.fact) for each in span.seen]
            if len(lengths) < OFTEN or min(lengths[-OFTEN:]) < FAR:
                continue  # honest clients are scaled down now and then
            edges = in_words(sorted({each.edge for each in span.seen}))
            what = f"{edges} scaled {client} down: up to {max(lengths):.3g} times too long"
            fold.add(Story("clipped", (client,), what, span.first, span.last), span.seen)


def not_taken(seen: Iterable[Seen]) -> list[dict[str, Any]]:
    """Return models that were refused, late or scaled down, by edge and client: how often, why."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in seen:
        fact = each.fact
        if isinstance(fact, facts.UploadRefused):
            what, why = "refused", fact.reason
        elif isinstance(fact, facts.UploadLate):
            what, why = "late", f"period {fact.period} came in period {fact.now}"
        elif isinstance(fact, facts.Clipped):
            what, why = "scaled down", f"{_length(fact):.3g} times as long as others allow"
        else:
            continue
        about = {"client": fact.client, "edge": each.edge, "what": what}
        row = rows.setdefault((fact.client, each.edge, what), {**about, "times": 0})
        row |= {"times": row["times"] + each.count, "last": each.until, "why": why}
    return sorted(rows.values(), key=lambda row: -row["last"])[:ROWS]


def _length(fact: Any) -> float:
    return float(fact.norm / fact.most) if fact.most else float("inf")


def tell_neighbours(fold: Fold) -> None:
    """Neighbours whose messages are refused, or that are left out."""
    for peer, spans in by_subject([*fold.of(facts.MessageRefused)], lambda fact: fact.peer).items():
        for span in clusters(spans, GAP):
            fact: Any = span.seen[-1].fact
            count = sum(each.count for each in span.seen)
            edges = in_words(sorted({each.edge for each in span.seen}))
            what = f"{edges} refused {counted(range(count), 'message')} of {peer}: {fact.reason}"
            _known_or(fold, Story("message", (peer,), what, span.first, span.last), span)
    for peer, spans in by_subject([*fold.of(facts.LeftOut)], lambda fact: fact.peer).items():
        for span in clusters(spans, GAP):
            edges = in_words(sorted({each.edge for each in span.seen}))
            what = f"{edges} left {peer} out of exchanges, for which it was waited in vain"
            _known_or(fold, Story("left-out", (peer,), what, span.first, span.last), span)


def tell_singles(fold: Fold) -> None:
    for each in fold.of(*SINGLE):
        reason = getattr(each.fact, "reason", "")
        if isinstance(each.fact, facts.RevocationList) and not reason:
            continue
        what = f"{each.edge} {SINGLE[type(each.fact)]}" + (f" ({reason})" if reason else "")
        fold.add(Story("problem", (each.edge,), what, each.time, each.until), [each])


def _known_or(fold: Fold, story: Story, span: Span) -> None:
    """Make facts a part of a story that explains them, or of this one."""
    names = {*story.about, *(each.edge for each in span.seen)}
    known = fold.explains(names, span.first, SETTLE)
    if known is None:
        fold.add(story, span.seen)
    else:
        fold.claim(known, span.seen)
