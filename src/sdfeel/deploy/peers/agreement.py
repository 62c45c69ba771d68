"""How the two ends of a link agree: used by both, or by neither, or made good later. No I/O here.

Two-phase commit with presumed abort. In each exchange one end coordinates a link (it dialled; in an
all-reduce it is the parent in the tree) and the other takes part:

    both          -> model                each sends its own and checks the other's
    participant   -> PREPARED             it holds both models and will do as it is told
    coordinator   -> COMMIT or ABORT      once it holds both models and has heard PREPARED

- Not prepared, the participant may leave the link out by itself: the coordinator cannot commit.
- Prepared, it must learn the decision. If the stream breaks, it asks on the next one. If it hears
  nothing until the deadline, it is in doubt: it goes on without the link, keeps what the link would
  have given (the change), and makes it good if the coordinator turns out to have committed.
- An end that dies before the period is on its disk comes back without it. So each end keeps the
  change of a link that it used until the other has a checkpoint with it. If the other comes back
  in another life, it is asked; if it has forgotten, the change is taken back.

The table below is all there is to it: (state, event) -> (state, actions), for one transaction, that
is one link in one attempt at one exchange. Where nothing is to be done it says so; an event that it
does not list is a bug of ours and raises `Unlisted`. What the other end says is looked at before:
it never comes to an event that the table does not have. Both ends follow the same table; TELL is
for the coordinator's mouth only and ASK in doubt for the participant's. In an all-reduce all links
of the tree carry the same transaction: what is decided on the link to the parent is decided on
those to the children.

The mean is kept because a link's two changes cancel, m-tilde_d change_d + m-tilde_j change_j = 0,
for exchanges of eq. (5) as for an all-reduce (see `peers.allreduce`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar

__all__ = [
    "TABLE",
    "Action",
    "Agreement",
    "Base",
    "Do",
    "Id",
    "Input",
    "Owed",
    "Standing",
    "Transaction",
    "Unlisted",
    "Word",
]

Change = TypeVar("Change")
# Settled transactions of a link that an end still answers for; beyond it those of the last two
# periods, as the other end counts them: it may say what it likes, so not more than MOST.
REMEMBERED, MOST = 256, 4096
# Open transactions of earlier periods on one link, above which it is left out until some settle.
CROWDED = 24


class Id(NamedTuple):
    """An attempt at an exchange: `ballot` never comes twice, so neither does an id."""

    period: int
    exchange: int
    ballot: int


class Standing(Enum):
    UNKNOWN = "unknown"  # never promised, aborted or taken back: presumed abort
    ACTIVE = "active"  # coordinator: models are under way, either end may still leave
    PREPARED = "prepared"  # both models are here: does as decided
    IN_DOUBT = "in doubt"  # prepared, and the exchange went on without the decision
    COMMITTED = "committed"  # used; the other end may not have that on its disk
    SETTLED = "settled"  # used, and the other end's disk has it


class Input(Enum):
    BEGIN = "begin"  # the coordinator offers its model
    PREPARE = "prepare"  # this end holds both models (the coordinator: and heard PREPARED)
    COMMIT = "commit"  # decided, or heard from the coordinator
    ABORT = "abort"
    DEADLINE = "deadline"  # the exchange cannot wait any longer
    LOST = "stream lost"
    MET = "met"  # the other end is there again, or it is time to ask once more
    REBORN = "reborn"  # the same, and it has died since this was used
    SAVED = "saved"  # the other end has a checkpoint with it
    ASKED = "asked"  # by the other end


class Do(Enum):
    SAY_PREPARED = "say prepared"
    TELL_COMMIT = "tell commit"
    TELL_ABORT = "tell abort"
    ANSWER_COMMIT = "answer commit"
    ANSWER_ABORT = "answer abort"
    ASK = "ask"
    USE = "use"
    LEAVE_OUT = "leave out"
    MAKE_GOOD = "make good"  # add the change
    TAKE_BACK = "take back"  # subtract it
    DROP = "drop"  # forget it
    PERSIST = "persist"  # what was done to the model since the last checkpoint must not be lost


S, E = Standing, Input
TABLE: dict[tuple[Standing, Input], tuple[Standing, tuple[Do, ...]]] = {
    (S.UNKNOWN, E.BEGIN): (S.ACTIVE, ()),
    (S.UNKNOWN, E.PREPARE): (S.PREPARED, (Do.SAY_PREPARED,)),
    (S.UNKNOWN, E.ASKED): (S.UNKNOWN, (Do.ANSWER_ABORT,)),
    (S.ACTIVE, E.PREPARE): (S.PREPARED, ()),
    (S.ACTIVE, E.ABORT): (S.UNKNOWN, (Do.TELL_ABORT, Do.LEAVE_OUT)),
    (S.ACTIVE, E.LOST): (S.UNKNOWN, (Do.LEAVE_OUT,)),
    (S.ACTIVE, E.ASKED): (S.ACTIVE, ()),  # it hears the decision when there is one
    (S.PREPARED, E.COMMIT): (S.COMMITTED, (Do.TELL_COMMIT, Do.USE)),
    (S.PREPARED, E.ABORT): (S.UNKNOWN, (Do.TELL_ABORT, Do.LEAVE_OUT)),
    (S.PREPARED, E.DEADLINE): (S.IN_DOUBT, (Do.LEAVE_OUT,)),
    (S.PREPARED, E.LOST): (S.PREPARED, ()),  # a promise outlives the stream
    (S.PREPARED, E.MET): (S.PREPARED, (Do.ASK,)),
    (S.PREPARED, E.ASKED): (S.PREPARED, ()),
    (S.IN_DOUBT, E.COMMIT): (S.COMMITTED, (Do.TELL_COMMIT, Do.MAKE_GOOD, Do.PERSIST)),
    (S.IN_DOUBT, E.ABORT): (S.UNKNOWN, (Do.TELL_ABORT, Do.DROP, Do.PERSIST)),
    (S.IN_DOUBT, E.LOST): (S.IN_DOUBT, ()),
    (S.IN_DOUBT, E.MET): (S.IN_DOUBT, (Do.ASK,)),
    (S.IN_DOUBT, E.ASKED): (S.IN_DOUBT, ()),
    (S.COMMITTED, E.SAVED): (S.SETTLED, ()),
    (S.COMMITTED, E.REBORN): (S.COMMITTED, (Do.ASK,)),
    (S.COMMITTED, E.COMMIT): (S.COMMITTED, ()),  # the other end has it still
    (S.COMMITTED, E.ABORT): (S.UNKNOWN, (Do.TAKE_BACK, Do.PERSIST)),
    (S.COMMITTED, E.LOST): (S.COMMITTED, ()),
    (S.COMMITTED, E.MET): (S.COMMITTED, ()),
    (S.COMMITTED, E.ASKED): (S.COMMITTED, (Do.ANSWER_COMMIT,)),
    (S.SETTLED, E.ASKED): (S.SETTLED, (Do.ANSWER_COMMIT,)),
}


class Unlisted(Exception):  # noqa: N818 - said of an event
    """An event that cannot be in this state, so that something is wrong with this program."""

    def __init__(self, transaction: Transaction[Any], event: Input) -> None:
        about = f"{transaction.peer}, {tuple(transaction.id)}"
        super().__init__(f"{transaction.state.value!r} and {event.value!r} ({about})")


class Word(Enum):
    """What the ends say to each other about a transaction."""

    PREPARED = "prepared"
    COMMIT = "commit"
    ABORT = "abort"
    ASK = "ask"


SAYS = {
    Do.SAY_PREPARED: Word.PREPARED,
    Do.TELL_COMMIT: Word.COMMIT,
    Do.ANSWER_COMMIT: Word.COMMIT,
    Do.TELL_ABORT: Word.ABORT,
    Do.ANSWER_ABORT: Word.ABORT,
    Do.ASK: Word.ASK,
}


class Base(NamedTuple, Generic[Change]):
    """Models that both ends of a link hold since it was used: coded messages are changes of them.

    mine    this end's, as the other end has it
    number  larger than that of all for which this end was prepared before
    """

    mine: Change
    theirs: Change
    number: int = 0


@dataclass
class Transaction(Generic[Change]):
    """One link in one attempt at one exchange, as one end sees it.

    change     what the link gives this end, once it is prepared
    vote       coordinator: the sha256 of the participant's model, from its PREPARED
    life       of the other end, when it prepared or told the decision
    without    the number of the other end's last checkpoint that does not have it
    own        the same of this end
    used       whether the exchange itself used the link
    base       what both ends hold once it is used; None: as before
    is_beside  it goes on beside another one of the link, which alone changes what both ends hold
    """

    peer: str
    id: Id
    coordinates: bool
    state: Standing = Standing.UNKNOWN
    change: Change | None = None
    vote: bytes | None = None
    life: int = 0
    without: int = 0
    own: int = 0
    used: bool = False
    base: Base[Change] | None = None
    is_beside: bool = False

    def has_vote(self, sha256: bytes) -> bool:
        """Whether the participant has promised, about this model, and the link is still ours."""
        return self.state is Standing.ACTIVE and self.vote == sha256


@dataclass(frozen=True)
class Action(Generic[Change]):
    """What the edge must do: say a word to the peer, or something with the change."""

    do: Do
    peer: str
    id: Id
    word: Word | None = None
    checkpoint: int = 0  # goes with the word: the speaker's last one that does not have it
    change: Change | None = None


Actions = list[Action[Change]]


class Owed(NamedTuple, Generic[Change]):
    """What a link gives; `is_late`: after the exchange itself was over."""

    peer: str
    change: Change
    is_late: bool = True


@dataclass
class _Peer:
    life: int = 0
    checkpoint: int = 0


@dataclass
class Agreement(Generic[Change]):
    """All that one edge has promised, used and still owes, on all its links.

    ballot       the next one; begins at a random number in every life of the edge
    checkpoint   the number of the last one begun
    open         what is not decided, or what the other end may not have on its disk
    settled      what is, and the number of this end's last checkpoint without it
    owed         what is to be added to the model before the next checkpoint
    bases        by neighbour, what both ends hold: it changes with the word COMMIT
    known_lives  of the others, as the checkpoint that this edge began from had them
    leads        whether this end has precedence on the link to a neighbour

    `agreement_notes` puts it into checkpoints; the exchanges and streams call what is below.
    """

    ballot: int = 1
    checkpoint: int = 0
    open: dict[tuple[str, Id], Transaction[Change]] = field(default_factory=dict)
    settled: dict[tuple[str, Id], int] = field(default_factory=dict)
    owed: list[Owed[Change]] = field(default_factory=list)
    bases: dict[str, Base[Change]] = field(default_factory=dict)
    known_lives: dict[str, int] = field(default_factory=dict)
    leads: Callable[[str], bool] = lambda _: True

    def __post_init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._bases_made = 0

    # What the exchanges do.

    def draw(self, period: int, exchange: int) -> Id:
        """A new attempt at an exchange; the coordinator (of an all-reduce: the root) draws it."""
        self.ballot += 1
        return Id(period, exchange, self.ballot)

    def is_new(self, peer: str, id_: Id) -> bool:
        """Whether nothing of this id is open on the link, or settled."""
        return (peer, id_) not in self.open and (peer, id_) not in self.settled

    def begin(self, peer: str, id_: Id) -> Transaction[Change]:
        """As coordinator: our model goes out with this id."""
        transaction: Transaction[Change] = Transaction(peer, id_, coordinates=True)
        self._move(transaction, Input.BEGIN)
        return transaction

    def prepare(
        self, peer: str, id_: Id, change: Change, base: Base[Change] | None = None
    ) -> tuple[Transaction[Change], Actions[Change]]:
        """As participant: both models are here. Once only for an id."""
        if not self.is_new(peer, id_):
            return Transaction(peer, id_, coordinates=False), []
        transaction = Transaction(peer, id_, coordinates=False, change=change)
        transaction.base = self._numbered(base)
        for other in self._with(peer):
            if other.state is Standing.ACTIVE:  # each has begun before it heard of the other
                loser = transaction if self.leads(peer) else other
                loser.is_beside, loser.base = True, None
        transaction.life = self._peer(peer).life
        return transaction, self._move(transaction, Input.PREPARE)

    def voted(
        self,
        transaction: Transaction[Change],
        change: Change,
        base: Base[Change] | None = None,
    ) -> None:
        """As coordinator: PREPARED was heard, about the model that is held here (`has_vote`)."""
        transaction.change = change
        transaction.base = None if transaction.is_beside else self._numbered(base)
        self._move(transaction, Input.PREPARE)

    def commit(self, transaction: Transaction[Change]) -> Actions[Change]:
        return self._move(transaction, Input.COMMIT)

    def abort(self, transaction: Transaction[Change]) -> Actions[Change]:
        """The coordinator's decision; a participant may leave only what it has not promised.

        What was left already (the stream was lost) is left.
        """
        is_ours = transaction.coordinates and transaction.state is not Standing.UNKNOWN
        return self._move(transaction, Input.ABORT) if is_ours else []

    def deadline(self, transaction: Transaction[Change]) -> Actions[Change]:
        """An exchange waits no longer; in doubt, unless the decision has come."""
        is_undecided = transaction.state is Standing.PREPARED
        return self._move(transaction, Input.DEADLINE) if is_undecided else []

    def leave(self) -> Actions[Change]:
        """Abort what only this edge decides: not what hangs on the link above, in an all-reduce."""
        promised = {t.id for t in self.open.values() if not t.coordinates}
        undecided = (Standing.ACTIVE, Standing.PREPARED)
        mine = [t for t in self.open.values() if t.state in undecided and t.id not in promised]
        return [action for transaction in mine for action in self.abort(transaction)]

    def is_deciding(self, peer: str) -> bool:
        """Whether an exchange waits for a word on this link."""
        return any(t.state in (Standing.ACTIVE, Standing.PREPARED) for t in self._with(peer))

    def undecided_bases(self, peer: str) -> list[Base[Change]]:
        """What both ends hold if the other end has decided to use the link."""
        waiting = (Standing.PREPARED, Standing.IN_DOUBT)
        bases = (t.base for t in self._with(peer) if t.state in waiting)
        return [base for base in bases if base is not None]

    def is_crowded(self, peer: str, period: int) -> bool:
        """Whether so much is open on the link that it is better left out."""
        return sum(t.id.period != period for t in self._with(peer)) >= CROWDED

    # What comes from outside.

    def hear(
        self, peer: str, word: Word, id_: Id, checkpoint: int = 0, sha256: bytes = b""
    ) -> Actions[Change]:
        """A word of the other end about a transaction; `checkpoint` goes with it."""
        found = self.open.get((peer, id_))
        if found is None:
            return self._answer(peer, id_) if word in (Word.PREPARED, Word.ASK) else []
        if word is Word.ASK:
            return self._move(found, Input.ASKED)
        if word is Word.PREPARED:
            if found.state is Standing.ACTIVE:
                found.vote, found.without = sha256, checkpoint
                found.life = self._peer(peer).life
            return []
        if found.coordinates and found.state is not Standing.COMMITTED:
            return []  # it is not the participant who decides
        return self._told(found, word, checkpoint)

    def _told(
        self, transaction: Transaction[Change], word: Word, checkpoint: int
    ) -> Actions[Change]:
        """The decision; or, about what was used, whether the other end has it still."""
        if word is Word.ABORT:
            return self._decide(transaction, Input.ABORT)
        transaction.life = self._peer(transaction.peer).life
        transaction.without = checkpoint
        return self._decide(transaction, Input.COMMIT) + self._look(transaction)

    def met(self, peer: str, life: int, checkpoint: int) -> Actions[Change]:
        """The other end is there, on a new stream, in this life and with this checkpoint."""
        self._peers[peer] = _Peer(life, checkpoint)
        return self.remind(peer)

    def lives(self) -> dict[str, int]:
        """Of the others, as last met."""
        return self.known_lives | {name: peer.life for name, peer in self._peers.items()}

    def remind(self, peer: str) -> Actions[Change]:
        """Asks (again) about what is open on a link that is up."""
        actions: Actions[Change] = []
        for transaction in list(self._with(peer)):
            if not transaction.coordinates:
                actions += self._move(transaction, Input.MET)
            actions += self._look(transaction)
        return actions

    def progress(self, peer: str, checkpoint: int) -> None:
        """The other end has this checkpoint on its disk."""
        self._peer(peer).checkpoint = checkpoint
        for transaction in list(self._with(peer)):
            if transaction.life == self._peer(peer).life:
                self._look(transaction)

    def lost(self, peer: str) -> Actions[Change]:
        """The stream ended, or another took its place."""
        found = [self._move(t, Input.LOST) for t in list(self._with(peer))]
        return [action for actions in found for action in actions]

    # The table at work.

    def _peer(self, name: str) -> _Peer:
        return self._peers.setdefault(name, _Peer())

    def _with(self, peer: str) -> Iterator[Transaction[Change]]:
        return (t for (name, _), t in self.open.items() if name == peer)

    def _answer(self, peer: str, id_: Id) -> Actions[Change]:
        """About what is not open: settled or unknown."""
        own = self.settled.get((peer, id_))
        state = Standing.UNKNOWN if own is None else Standing.SETTLED
        passing: Transaction[Change] = Transaction(peer, id_, coordinates=False, state=state)
        passing.own = own or 0
        _, todo = _line(passing, Input.ASKED)
        return [self._action(passing, do) for do in todo]

    def _look(self, transaction: Transaction[Change]) -> Actions[Change]:
        """Whether the other end's disk has what was used, as far as we know."""
        if transaction.state is not Standing.COMMITTED:
            return []
        peer = self._peer(transaction.peer)
        if transaction.life != peer.life:
            return self._move(transaction, Input.REBORN)
        if peer.checkpoint > transaction.without:
            return self._move(transaction, Input.SAVED)
        return []

    def _decide(self, transaction: Transaction[Change], event: Input) -> Actions[Change]:
        """Also on the links below, which carry the same transaction in an all-reduce."""
        was = transaction.state
        actions = self._move(transaction, event)
        if was in (Standing.PREPARED, Standing.IN_DOUBT):
            # Others of this id can only be a parent's invention.
            below = [t for t in self.open.values() if t.coordinates and t.id == transaction.id]
            for other in below:
                if other.state is was:
                    actions += self._move(other, event)
        return actions

    def _move(self, transaction: Transaction[Change], event: Input) -> Actions[Change]:
        before = transaction.state
        transaction.state, todo = _line(transaction, event)
        key = transaction.peer, transaction.id
        if transaction.state is Standing.COMMITTED and before is not Standing.COMMITTED:
            transaction.own = self.checkpoint
            transaction.used = before is Standing.PREPARED
            self._rest_on(transaction.peer, transaction.base)
        if transaction.state is Standing.PREPARED:
            transaction.own = self.checkpoint
        if transaction.state in (Standing.UNKNOWN, Standing.SETTLED):
            self.open.pop(key, None)
        else:
            self.open[key] = transaction
        if transaction.state is Standing.SETTLED and before is not Standing.SETTLED:
            self._remember(key, transaction.own)
        return [
            self._action(transaction, do)
            for do in todo
            if transaction.coordinates or do not in (Do.TELL_COMMIT, Do.TELL_ABORT)
        ]

    def _numbered(self, base: Base[Change] | None) -> Base[Change] | None:
        self._bases_made += 1
        return base if base is None else base._replace(number=self._bases_made)

    def _rest_on(self, peer: str, base: Base[Change] | None) -> None:
        """Both ends hold this now; a decision that comes late changes nothing newer."""
        known = self.bases.get(peer)
        if base is not None and (known is None or base.number > known.number):
            self.bases[peer] = base

    def _action(self, transaction: Transaction[Change], do: Do) -> Action[Change]:
        if do is Do.MAKE_GOOD and transaction.change is not None:
            self.owed.append(Owed(transaction.peer, transaction.change))
        if do is Do.TAKE_BACK and transaction.change is not None:
            change = -transaction.change  # type: ignore[operator]
            self.owed.append(Owed(transaction.peer, change))
        peer, id_ = transaction.peer, transaction.id
        return Action(do, peer, id_, SAYS.get(do), transaction.own, transaction.change)

    def _remember(self, key: tuple[str, Id], own: int) -> None:
        self.settled[key] = own
        peer, last = key[0], key[1].period
        mine = [known for known in self.settled if known[0] == peer]
        for place, known in enumerate(mine[:-REMEMBERED]):
            if known[1].period < last - 1 or place < len(mine) - MOST:
                del self.settled[known]


def _line(transaction: Transaction[Any], event: Input) -> tuple[Standing, tuple[Do, ...]]:
    """Return the line of the table. Raises Unlisted."""
    line = TABLE.get((transaction.state, event))
    if line is None:
        raise Unlisted(transaction, event)
    return line
