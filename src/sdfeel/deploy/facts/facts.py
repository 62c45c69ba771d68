"""Everything that a node tells about itself: one class an event, with its fields.

The log writes a fact as a line whose `event` is the name of the class (`LinkDown`: `link-down`); a
field that has its default is left out, and the entries of a mapping are fields of their own. The
first sentence of a class stands in `docs/events.md`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, dataclass_transform

__all__ = ["FACTS", "Fact", "Limit"]

FACTS: list[type[Fact]] = []  # in the order of this file
RECENT = 40  # of a class, so that a flood of one does not push out the others


class Limit(NamedTuple):
    """At most so many lines in so many seconds about facts that have the same fields `by`."""

    most: int
    seconds: float
    by: tuple[str, ...]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Fact:
    """Something that has happened; a frozen dataclass.

    event    its name in the log
    teller   the kind of node that tells it: "edge", "client" or "node", which is both
    repeats  comes again and again: a line the first time, and at each doubling of its number
    limit    how many lines there are of it, where others may cause it as often as they like
    recent   how many of the newest an operator who asks later is given
    """

    event: ClassVar[str] = ""
    teller: ClassVar[str] = "node"
    repeats: ClassVar[bool] = False
    limit: ClassVar[Limit | None] = None
    recent: ClassVar[int] = RECENT

    def __init_subclass__(
        cls,
        event: str = "",
        teller: str = "",
        repeats: bool = False,
        limit: Limit | None = None,
        recent: int = RECENT,
    ) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.repeats, cls.limit, cls.recent = repeats, limit, recent
        if teller:  # a base of other facts
            cls.teller = teller
            return
        cls.event = event or re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()
        FACTS.append(cls)

    def fields(self) -> dict[str, Any]:
        """Return what a line of the log has beside time, node and event."""
        line: dict[str, Any] = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Mapping):
                line |= value
            elif value != field.default:
                line[field.name] = value
        return line


class EdgeFact(Fact, teller="edge"):
    """Told by edges."""


class ClientFact(Fact, teller="client"):
    """Told by clients."""


Key = Sequence[int]  # a period and the number of an exchange in it
BY_CLIENT = Limit(10, 10.0, ("client",))


# An edge's life.


class FreshStart(EdgeFact):
    """The edge has no checkpoint and begins with the first model, which has so many values."""

    values: int


class Resumed(EdgeFact):
    """The edge goes on from its checkpoint of this period."""

    period: int
    checkpoint: int


class CheckpointDamaged(EdgeFact):
    """A file of a checkpoint is broken and was put aside."""

    reason: str


class Listening(EdgeFact):
    """The edge takes connections at this address."""

    address: str
    secure: bool


class OlderFileHolds(EdgeFact):
    """The edge has a newer deployment file; the older one holds until these have it too."""

    without: Sequence[str]


class OtherFile(EdgeFact):
    """Other edges have another deployment file than the one that tells it, or none any more."""

    edges: Sequence[str]


class NewerFileHolds(EdgeFact):
    """All edges have the newer deployment file; this one begins again with it."""


class Adopted(EdgeFact):
    """An edge without a checkpoint goes on from a neighbour's model, beside those of others."""

    peer: str
    period: int
    beside: Sequence[str]


class NotAdopted(EdgeFact):
    """A neighbour that was asked for its model did not give a valid one."""

    peer: str
    reason: str


class Lent(EdgeFact):
    """A neighbour without a checkpoint was given the model of this period."""

    peer: str
    period: int


class Jump(EdgeFact):
    """The edge missed an exchange and goes on where the others are, with the work of `kept`."""

    period: int
    to: int
    kept: Sequence[str]


class Finished(EdgeFact):
    """All periods are done."""

    period: int


class Stopped(EdgeFact):
    """The edge has ended; this period is on its disk."""

    period: int


class Exported(EdgeFact):
    """An operator took the model of this period; `certificate` is the number of the one used."""

    period: int
    by: str
    certificate: str


# Its periods.


class Period(EdgeFact):
    """A period is over and on the disk; the seconds that its phases took."""

    period: int
    participants: Sequence[str]
    links_used: int
    collect: float
    mix: float
    save: float


class Deadline(EdgeFact):
    """The clients in `missing` did not answer in time; the period goes on without them."""

    period: int
    missing: Sequence[str]


class NoClients(EdgeFact):
    """No client takes part, so no period goes by; `silent` are connected and do not answer."""

    period: int
    silent: Sequence[str] = ()


class RowsBegunAnew(EdgeFact):
    """The checkpoint has what another server optimizer remembers (`found`); ours begins anew."""

    method: str
    found: Sequence[str]


class CorrectionBegunAnew(EdgeFact):
    """What `clients` know of a correction is not what counted: all clients begin it at 0."""

    period: int
    clients: Sequence[str]


class Measured(EdgeFact, recent=200):
    """Losses and metrics of the model after this iteration, on the holdout of the edge."""

    iteration: int
    values: Mapping[str, float]


class ClientsMeasured(EdgeFact, recent=200):
    """What clients say of the model after this iteration: weighted means, which nobody checks."""

    iteration: int
    values: Mapping[str, float]


class EvaluationFailed(EdgeFact):
    """The function behind `evaluation.holdout` failed; training goes on without it."""

    reason: str


class RecordProblem(EdgeFact, repeats=True):
    """The run folder cannot be written; training goes on."""

    reason: str


class DiskProblem(EdgeFact):
    """The state disk takes no checkpoint: the edge pauses and tries again."""

    reason: str


class DiskSlow(EdgeFact, limit=Limit(1, 10.0, ())):
    """The state disk is so many periods behind: the edge pauses until it has them."""

    periods: int


class DiskRelief(EdgeFact):
    """The state disk takes checkpoints again, after so many seconds."""

    seconds: float


class DiskCaughtUp(EdgeFact, limit=Limit(1, 10.0, ())):
    """The state disk has all periods but a few; the edge had paused for so many seconds."""

    seconds: float


# Its clients, and callers who are turned away.


class ClientUp(EdgeFact, limit=BY_CLIENT):
    """A client is connected; a `guest` belongs to another edge."""

    client: str
    guest: bool


class ClientDown(EdgeFact, limit=BY_CLIENT):
    """A client's stream has ended, with a reason if it ended here."""

    client: str
    reason: str = ""


class ClientReplaced(EdgeFact, limit=BY_CLIENT):
    """A client dialled again before its old stream was known to be dead."""

    client: str
    reason: str


class UploadLate(EdgeFact, event="late", limit=BY_CLIENT):
    """A model of a period that is over was not used; this is period `now`."""

    client: str
    period: int
    now: int


class Clipped(EdgeFact, limit=Limit(1, 60.0, ("client",))):
    """A client's update of this norm was longer than `most` and was scaled down to it."""

    client: str
    period: int
    norm: float
    most: float


class ExchangeClipped(EdgeFact, limit=Limit(1, 60.0, ("peer",))):
    """A neighbour's model was farther away than `most`, and only so much of the way is gone."""

    peer: str
    norm: float
    most: float


class Unprotected(EdgeFact):
    """The edge has fewer than three clients, so its averaging rule holds no liar among them."""

    rule: str
    clients: Sequence[str]


class TakenLate(EdgeFact, limit=BY_CLIENT):
    """A slow client has finished the work of an earlier period: its update counts in this one."""

    client: str
    period: int
    now: int


class UploadRefused(EdgeFact, event="refused", limit=Limit(1, 1.0, ("kind", "client"))):
    """A client's model was not valid and was not used."""

    kind: str
    reason: str
    client: str
    period: int


class MessageRefused(EdgeFact, event="refused", limit=Limit(1, 1.0, ("kind", "peer"))):
    """A model or another word of a neighbour was not valid and was not used."""

    kind: str
    reason: str
    peer: str
    key: Key | None = None


class PeerRefused(EdgeFact, limit=Limit(1, 1.0, ("kind", "caller"))):
    """A caller was not let in, or was shown out; `caller` as its certificate names it."""

    kind: str
    reason: str
    caller: str = ""


class HandshakeRefused(EdgeFact):
    """Callers were turned away before they could say anything; so many since the last line."""

    reason: str
    count: int
    detail: str


# Its links. With `audit = true` in the file, `before`, `after` and `moved` are a linear function of
# the model, from which anybody can see that the weighted mean is kept.


class LinkUp(EdgeFact):
    """A neighbour is connected; `done` is the last period that it has finished."""

    peer: str
    done: int


class LinkDown(EdgeFact):
    """The stream to a neighbour has ended; with a reason if it ended here. `left`: it said so."""

    peer: str
    reason: str = ""
    left: bool = False


class DialFailed(EdgeFact):
    """A neighbour was not reached, or it or we refused; told when the reason is a new one."""

    peer: str
    reason: str
    kind: str = ""


class WeightsDiffer(EdgeFact):
    """A neighbour's file has other clients, so the link is not used."""

    peer: str
    reason: str


class Contradiction(EdgeFact):
    """An edge has signed two states under one number; no edge uses its links any more."""

    edge: str
    number: int
    peer: str


class Missed(EdgeFact):
    """A neighbour is connected and was waited for in vain; so many times in a row."""

    peer: str
    times: int


class LeftOut(EdgeFact):
    """A neighbour held up exchanges that need everybody too often; it is left out of so many."""

    peer: str
    exchanges: int


class Exchange(EdgeFact):
    """An exchange went without the links in `missing`; with `audit`, every exchange."""

    period: int
    exchange: int
    used: Sequence[str]
    missing: Sequence[str]
    before: float | None = None
    after: float | None = None


class Swap(EdgeFact):
    """With `audit`, without rounds: a neighbour's model moved ours."""

    peer: str
    key: Key
    ballot: int
    since: int
    moved: float


class Given(EdgeFact):
    """With `audit`, without rounds: the model has what the links of `peers` gave."""

    peers: Sequence[str]
    moved: float
    before: float
    after: float


class Undecided(EdgeFact):
    """A neighbour did not say in time whether a link counts; it will be asked again."""

    peer: str
    key: Key


class Resolved(EdgeFact):
    """A neighbour said later whether a link counted."""

    peer: str
    key: Key
    ballot: int
    since: int
    used: bool
    moved: float | None = None


class TakenBack(EdgeFact):
    """A neighbour died without what a link had given both, so this end took it out again."""

    peer: str
    key: Key
    ballot: int
    since: int
    moved: float | None = None


class Repaired(EdgeFact):
    """The model has now what a link gave after all."""

    peer: str


class Unsettled(EdgeFact):
    """At the end of training, a neighbour has not confirmed its part of an exchange."""

    peer: str
    key: Key
    ballot: int


# A client.


class Connected(ClientFact):
    """The client takes part at this edge."""

    edge: str


class EdgeLost(ClientFact):
    """The stream to the edge has ended; the client dials again."""

    edge: str
    reason: str


class EdgeUnreachable(ClientFact, repeats=True):
    """The edge does not answer; the fallbacks are tried, then again."""

    edge: str
    reason: str


class EdgeRefused(ClientFact, repeats=True):
    """The edge does not let this client in."""

    edge: str
    reason: str


class EdgeDistrusted(ClientFact, repeats=True):
    """The edge's certificate is revoked, or it cannot prove that it has it."""

    edge: str
    kind: str
    reason: str


class Uploaded(ClientFact):
    """A model was sent, after so many seconds of training, with what was measured."""

    period: int
    trained: float
    measures: Mapping[str, float]


class Accepted(ClientFact):
    """The edge has the model of this period, on its disk."""

    period: int


class ModelLate(ClientFact, event="late", limit=Limit(10, 10.0, ())):
    """The model came when the period was over, and was not used."""

    period: int
    reason: str


class ModelRefused(ClientFact, limit=Limit(10, 10.0, ())):
    """The edge did not take the model."""

    period: int
    reason: str


class TaskRefused(ClientFact, event="refused", limit=Limit(10, 10.0, ("kind",))):
    """The edge asked for what the file does not say, or sent a model that is not valid."""

    edge: str
    kind: str
    reason: str


class Renewed(ClientFact):
    """The client has a new certificate, and dials again with it."""

    edge: str


class GoingHome(ClientFact):
    """A guest goes back from this edge to its own, which is there again."""

    edge: str


class TrainingOver(ClientFact, event="finished"):
    """The edge said that training is over."""

    edge: str


# Any node.


class CertificateEnds(Fact):
    """The node's own certificate ends soon."""

    until: str
    hours: float
    remedy: str


class CertificateExpired(Fact):
    """The node's own certificate has ended; it does not dial with it."""

    until: str
    remedy: str


class CertificateRenewed(Fact):
    """The node has a certificate that does not end soon, after one that did."""

    until: str


class RevocationList(Fact):
    """`revoked.pem` is missing, damaged or older than the certificate."""

    reason: str


class LogRelief(Fact):
    """So many lines had to wait until there was room for them; they stand before this one."""

    count: int


class LogLost(Fact):
    """The log could not be written; so many lines are missing here."""

    count: int


class StopForced(Fact):
    """Told to stop, the program did not end by itself; the places at which it was."""

    reason: str
    thread: Sequence[str]
    task: Sequence[str]
