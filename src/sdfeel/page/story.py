"""What a story is, and the facts that the stories so far explain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sdfeel.deploy.facts import facts
from sdfeel.deploy.facts.facts import Fact
from sdfeel.page.observed import Seen
from sdfeel.page.spans import SLACK, Span

__all__ = [
    "GAP",
    "SETTLE",
    "START",
    "Fold",
    "Part",
    "Story",
    "by_subject",
    "counted",
    "in_words",
    "named",
    "settle",
    "together",
]

START = 30.0  # seconds that a deployment may take to come together
SETTLE = 6.0  # seconds after an edge has come back in which it finds its way
GAP = 60.0  # seconds between two of a kind that are one story
DETAILS = 60  # facts that are listed with a story
# What follows from an edge's coming and going.
FOLLOWS: tuple[type[Fact], ...] = (
    facts.LinkDown, facts.LinkUp, facts.DialFailed, facts.Missed, facts.LeftOut, facts.Undecided,
    facts.Resolved, facts.TakenBack, facts.Repaired, facts.Unsettled, facts.Jump, facts.Deadline,
    facts.Exchange, facts.Resumed, facts.FreshStart, facts.Adopted, facts.NotAdopted, facts.Lent,
    facts.Listening, facts.CheckpointDamaged, facts.ClientUp, facts.ClientDown, facts.NoClients,
    facts.ClientReplaced, facts.MessageRefused, facts.HandshakeRefused, facts.PeerRefused,
    facts.RowsBegunAnew, facts.CorrectionBegunAnew, facts.Unprotected, facts.Stopped,
)  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Words of a story, with a moment if it has one."""

    words: str
    at: float | None = None


@dataclass(frozen=True)
class Detail:
    """A fact of a story: when, which edge tells it, in words, and whether all is well then."""

    at: float
    edge: str
    words: str
    is_good: bool | None


@dataclass
class Story:
    """Something that happened to the edges or clients `about`, from `first` to `last`.

    last     None while it goes on
    what     a sentence without its end, which the parts are
    details  the facts that belong to it by their time, for the strip that replays it
    """

    kind: str
    about: tuple[str, ...]
    what: str
    first: float
    last: float | None
    parts: list[Part] = field(default_factory=list)
    details: list[Detail] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Fold:
    """The stories so far, and the facts that they explain."""

    def __init__(self, seen: Sequence[Seen], homes: Mapping[str, Sequence[str]], now: float):
        self.seen, self.homes, self.now = seen, homes, now
        self.home_of = {client: edge for edge, names in homes.items() for client in names}
        self.stories: list[Story] = []
        self._used: set[int] = set()

    def of(self, *kinds: type[Fact]) -> Iterator[Seen]:
        """Yield facts of these kinds that no story has yet."""
        for each in self.seen:
            if isinstance(each.fact, kinds) and id(each) not in self._used:
                yield each

    def add(self, story: Story, seen: Iterable[Seen] = ()) -> Story:
        self.stories.append(story)
        self.claim(story, seen)
        return story

    def claim(self, story: Story, seen: Iterable[Seen]) -> None:
        """Make facts a part of a story."""
        for each in seen:
            if id(each) not in self._used:
                self._used.add(id(each))
                story.details.append(_detail(each))
        story.details.sort(key=lambda detail: detail.at)
        del story.details[DETAILS:]

    def explains(self, names: Iterable[str], time: float, after: float = SLACK) -> Story | None:
        """Return the story about one of these that something at this moment follows from."""
        for story in self.stories:
            end = float("inf") if story.last is None else story.last + after
            if story.first - SLACK <= time <= end and set(names) & set(story.about):
                return story
        return None


def settle(fold: Fold, story: Story, edge: str, first: float, last: float) -> None:
    """Make all that follows from an edge's coming and going a part of its story."""
    clients = set(fold.homes.get(edge, ()))
    consequences = [
        each
        for each in fold.of(*FOLLOWS)
        if first - SLACK <= each.time <= last + SETTLE
        and (each.edge == edge or edge in named(each.fact) or clients & named(each.fact))
    ]
    fold.claim(story, consequences)


def named(fact: Fact) -> set[str]:
    """Return the nodes that a fact names."""
    caller = getattr(fact, "caller", "").partition("/")[2]
    names = (getattr(fact, name, None) for name in ("peer", "edge", "client"))
    return {name for name in (*names, caller) if name}


def by_subject(seen: Iterable[Seen], key: Callable[[Any], str]) -> dict[str, list[Span]]:
    """Return facts by what they are about, each as a span."""
    groups: dict[str, list[Span]] = defaultdict(list)
    for each in seen:
        name = key(each.fact)
        groups[name].append(Span((name,), each.time, each.until, [each]))
    return groups


def together(spans: Iterable[Span]) -> list[list[Span]]:
    """Return spans that began at the same time."""
    groups: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: span.first):
        if groups and span.first - groups[-1][0].first <= SLACK:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


GOOD = (facts.LinkUp, facts.ClientUp, facts.Resumed, facts.DiskRelief, facts.DiskCaughtUp)
BAD = (
    facts.LinkDown, facts.ClientDown, facts.DiskProblem, facts.DiskSlow, facts.NoClients,
    facts.Contradiction, facts.DialFailed, facts.PeerRefused, facts.HandshakeRefused,
    facts.UploadRefused, facts.MessageRefused, facts.CertificateExpired,
)  # fmt: skip


def _detail(seen: Seen) -> Detail:
    """Return a fact in a few words; its fields have their names."""
    fields = {name: value for name, value in seen.fact.fields().items() if value not in ("", ())}
    words = ", ".join(f"{name} {_short(value)}" for name, value in fields.items())
    many = f" (x{seen.count})" if seen.count > 1 else ""
    text = seen.fact.event + many + (f": {words}" if words else "")
    is_good = True if isinstance(seen.fact, GOOD) else False if isinstance(seen.fact, BAD) else None
    return Detail(seen.time, seen.edge, text, is_good)


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def in_words(names: Sequence[str]) -> str:
    """Return a, b and c."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


def counted(things: Iterable[object], noun: str) -> str:
    number = len(list(things))
    return f"{number} {noun}" + ("" if number == 1 else "s")
