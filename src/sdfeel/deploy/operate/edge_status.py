"""One edge as an operator sees it: what it answers, as rows that are checked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from sdfeel.deploy.facts.concern import Concern
from sdfeel.deploy.facts.period_times import PARTS
from sdfeel.deploy.operate.asking import printable
from sdfeel.deploy.protocol import v1

__all__ = ["CAUSES", "PHASES", "SCHEMA", "EdgeStatus", "LinkRow", "MemberRow", "read_row"]


PHASES = {
    "starting": "it reads its checkpoint and opens its port",
    "gathering": "it waits, once, for its neighbours, or without rounds for a first client",
    "adopting": "it has no checkpoint and takes over a neighbour's model",
    "collecting": "its clients train, and it waits for their models",
    "exchanging": "it exchanges models with its neighbours",
    "no-clients": "it waits for a client: no period goes by without one",
    "paused": "it waits for its disk, which takes no checkpoint",
    "finished": "all its periods are done",
    "no-answer": "it does not answer, and no checkpoint here says that it has finished",
}
SCHEMA = ConfigDict(use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)


# Why an edge does not answer, as far as that can be seen from outside.
CAUSES = {
    "timeout": "nothing comes back: it is frozen, overloaded or cut off",
    "nothing-listens": "nothing listens at its address",
    "unreachable": "its address cannot be reached, or it shows a certificate that is not good",
    "untrusted": "it cannot prove to be the edge that it should be",
}


@dataclass(frozen=True)
class LinkRow:
    """One end of a link."""

    __pydantic_config__: ClassVar[ConfigDict] = SCHEMA

    up: bool = False
    """Whether models can be exchanged over it now."""
    used: int = 0
    """Exchanges that used it, since the edge was started."""
    skipped: int = 0
    """Exchanges that went without it."""
    disagreement: float = 0.0
    """Relative distance to the neighbour's model at the last exchange."""
    sent: int = 0
    """Bytes of models, since the edge was started."""
    received: int = 0
    """The same in the other direction."""

    def __str__(self) -> str:
        return f"{'up' if self.up else 'down'} {self.used}+{self.skipped}"


@dataclass(frozen=True)
class MemberRow:
    """A client that is connected."""

    __pydantic_config__: ClassVar[ConfigDict] = SCHEMA

    name: str
    """As the deployment file calls it."""
    guest: bool = False
    """Whether it belongs to another edge."""
    certificate_hours: float | None = None
    """Until its certificate ends; null in plain text."""
    measures: dict[str, float] = field(default_factory=dict)
    """Losses and metrics as it says; nobody has checked them."""


@dataclass(frozen=True)
class EdgeStatus:
    """One edge as it answered, or why it did not."""

    __pydantic_config__: ClassVar[ConfigDict] = SCHEMA

    name: str
    """The edge, as the deployment file calls it."""
    problem: str = ""
    """Why it did not answer; empty if it did, or if it has finished."""
    cause: str = ""
    """The same as a word: "timeout", "nothing-listens", "unreachable", "untrusted"."""
    period: int = 0
    """Periods (tau1 iterations) that are finished and on its disk."""
    periods: int = 0
    """Periods of the whole training."""
    phase: str = ""
    """What it does."""
    ready: bool = False
    """Whether a client is connected and the disk keeps up."""
    clients: tuple[str, ...] = ()
    """Connected clients, guests among them."""
    expected: int = 0
    """Clients that are at home there, by its file."""
    members: tuple[MemberRow, ...] = ()
    """More about connected clients, as far as there is room for it in an answer."""
    links: dict[str, LinkRow] = field(default_factory=dict)
    """By neighbour."""
    seconds_per_period: float = 0.0
    """Length of the last period."""
    disagreement: float = 0.0
    """Largest relative distance to a neighbour's model at the last exchange."""
    refused: int = 0
    """Uploads refused since it was started."""
    late: int = 0
    """Uploads that came late since it was started."""
    loss: float | None = None
    """On its holdout, the last one; null before there is one, or without a holdout."""
    accuracy: float | None = None
    """On its holdout, likewise."""
    measures: dict[str, float] = field(default_factory=dict)
    """All losses and metrics on its holdout, the last of each."""
    warnings: tuple[Concern, ...] = ()
    """What an operator should look at."""
    certificate_hours: float | None = None
    """Until its certificate ends; null in plain text."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of its last round by what they went into."""
    memory: int = 0
    """Bytes of its process; 0 if it does not tell."""
    pace: str = ""
    """Name of the pace: synchronous, asynchronous."""
    steps: float | None = None
    """Without rounds: mean steps of its clients in the last turn."""
    answers: bool = False
    """Whether it answered now; an edge that has finished may be read from its checkpoints."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def claimed(self, *names: str) -> float | None:
        """Return the median of what its clients say, of the first of these measures there is."""
        for name in names:
            values = [m.measures[name] for m in self.members if name in m.measures]
            if values:
                return statistics.median(values)
        return None


def read_row(edge: str, reply: v1.StatusReply) -> EdgeStatus:
    """Return what an edge says of itself.

    Texts are the edge's: they are made harmless here, before anybody prints them.
    """
    measures = _measures(reply.measures)
    return EdgeStatus(
        name=edge,
        period=reply.period,
        periods=reply.periods,
        phase=printable(reply.phase),
        ready=reply.ready,
        clients=tuple(printable(name) for name in reply.clients),
        expected=reply.expected,
        members=tuple(
            MemberRow(
                printable(member.name),
                member.guest,
                _finite(member.certificate_hours),
                _measures(member.measures),
            )
            for member in reply.members
        ),
        links={
            printable(link.peer): LinkRow(
                up=link.up,
                used=link.used,
                skipped=link.skipped,
                disagreement=_finite(link.disagreement) or 0.0,
                sent=link.sent,
                received=link.received,
            )
            for link in reply.links
        },
        seconds_per_period=_finite(reply.seconds_per_period) or 0.0,
        disagreement=_finite(reply.disagreement) or 0.0,
        refused=reply.refused,
        late=reply.late,
        loss=measures.get("test_loss"),
        accuracy=measures.get("test_accuracy"),
        measures=measures,
        warnings=tuple(
            Concern(printable(each.kind), printable(each.text), printable(each.about))
            for each in reply.warnings
        ),
        certificate_hours=_finite(reply.certificate_hours),
        phases=_phases(reply),
        memory=reply.memory,
        pace=printable(reply.pace),
        steps=_finite(reply.steps) or None,
        answers=True,
    )


def _measures(measures: Iterable[v1.Measure]) -> dict[str, float]:
    values = {printable(measure.name): measure.value for measure in measures}
    return {name: value for name, value in values.items() if math.isfinite(value)}


def _phases(reply: v1.StatusReply) -> dict[str, float]:
    """Return the parts that there are, with seconds that can be."""
    seconds = {phase.name: phase.value for phase in reply.phases if phase.name in PARTS}
    return {name: s for name, s in seconds.items() if math.isfinite(s) and s >= 0}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
