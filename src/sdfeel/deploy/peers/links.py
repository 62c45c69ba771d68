"""All links of an edge, and what it has agreed on over them: words in, words and deeds out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sdfeel.deploy.facts import facts
from sdfeel.deploy.model.vectors import Change
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import (
    Action,
    Agreement,
    Base,
    Do,
    Id,
    Standing,
    Transaction,
    Word,
)
from sdfeel.deploy.peers.link import Hooks, Link
from sdfeel.deploy.peers.messages import Bases
from sdfeel.deploy.protocol import v1

__all__ = ["Links"]

WORDS = {
    Word.PREPARED: v1.Word.PREPARED,
    Word.COMMIT: v1.Word.COMMIT,
    Word.ABORT: v1.Word.ABORT,
    Word.ASK: v1.Word.ASK,
}
HEARD = {number: word for word, number in WORDS.items()}


class Links(dict[str, Link]):
    """By the neighbour's name.

    done         the last period that is finished and durable here
    is_unsaved   something was settled that the last checkpoint does not know
    is_paused    the disk does not keep up: the neighbours leave this edge out
    is_leaving   this edge has been told to stop
    barred       edges that have signed two states that contradict each other
    have_gone_on a neighbour was here before this edge restarted, and still is
    """

    def __init__(self, node: Node, agreement: Agreement[Change], done: int) -> None:
        super().__init__()
        self.agreement, self._node = agreement, node
        self.is_unsaved = self.have_gone_on = self.is_paused = self.is_leaving = False
        self.done, self._checkpoint = done, agreement.checkpoint
        self.barred: set[str] = set()
        self._waiting: dict[str, bool] = {}
        # What swaps without rounds need: see `peers.flows`.
        self.on_use: Callable[[Action[Change]], None] = lambda _: None
        self.moved: Callable[[Change | None, int], float | None] = lambda *_: None
        self.counts: Callable[[], list[v1.Count]] = list
        self.on_progress: Callable[[str, v1.Progress], None] = lambda *_: None
        agreement.leads = lambda peer: node.topology.at(self.done).leads(node.name, peer)
        for peer in node.topology.at(done).neighbours(node.name):
            self[peer] = Link(node, peer, Bases(agreement, peer), self._hooks(peer))
            self._waiting[peer] = False

    def _hooks(self, peer: str) -> Hooks:
        return Hooks(
            word=lambda decision: self._hear(peer, decision),
            met=lambda hello: self._met(peer, hello),
            progress=lambda word: self._progress(peer, word),
            lost=lambda: self.perform(self.agreement.lost(peer)),
        )

    def _met(self, peer: str, hello: v1.Hello) -> None:
        if self.agreement.known_lives.get(peer) == hello.incarnation:
            self.have_gone_on = True
        self.perform(self.agreement.met(peer, hello.incarnation, hello.checkpoint))
        self._tell_progress(peer)

    def _progress(self, peer: str, word: v1.Progress) -> None:
        self.agreement.progress(peer, word.checkpoint)
        self.on_progress(peer, word)

    def _hear(self, peer: str, decision: v1.Decision) -> None:
        word = HEARD.get(decision.word)
        if word is not None:
            id_ = Id(decision.period, decision.exchange, decision.ballot)
            found = self.agreement.hear(peer, word, id_, decision.checkpoint, decision.sha256)
            self.perform(found)

    # What exchanges decide.

    def prepare(
        self,
        peer: str,
        id_: Id,
        change: Change,
        sha256: bytes,
        base: Base[Change] | None = None,
    ) -> Transaction[Change]:
        """Promises to do as the coordinator says; `sha256` of the model that it has from us."""
        transaction, actions = self.agreement.prepare(peer, id_, change, base)
        self.perform(actions, sha256)
        return transaction

    def commit(self, transaction: Transaction[Change]) -> None:
        self.perform(self.agreement.commit(transaction))

    def abort(self, transaction: Transaction[Change]) -> None:
        self.perform(self.agreement.abort(transaction))

    def give_up_waiting(self, transaction: Transaction[Change]) -> None:
        self.perform(self.agreement.deadline(transaction))
        if transaction.state is Standing.IN_DOUBT:
            self._node.tell(facts.Undecided(peer=transaction.peer, key=transaction.id[:2]))

    def perform(self, actions: Sequence[Action[Change]], sha256: bytes = b"") -> None:
        """Says the words, and notes what was done."""
        for action in actions:
            if action.word is not None:
                self[action.peer].say(_decision(action, sha256))
            elif action.do in (Do.USE, Do.LEAVE_OUT):
                self[action.peer].count(action.do is Do.USE)
                if action.do is Do.USE:
                    self.on_use(action)
            elif action.do is Do.PERSIST:
                self.is_unsaved = True
            else:
                self._note(action)

    def _note(self, action: Action[Change]) -> None:
        fields: dict[str, Any] = {"peer": action.peer, "key": action.id[:2]}
        fields |= {"ballot": action.id.ballot, "since": self.agreement.checkpoint}
        if action.do is Do.TAKE_BACK:
            self._node.tell(facts.TakenBack(**fields, moved=self.moved(action.change, -1)))
        else:
            used = action.do is Do.MAKE_GOOD
            moved = self.moved(action.change, int(used))
            self._node.tell(facts.Resolved(**fields, used=used, moved=moved))

    def saved(self, period: int, checkpoint: int) -> None:
        """A checkpoint is on disk: the neighbours are told, and asked again what is still open."""
        self.done, self._checkpoint = period, checkpoint
        for peer, link in self.items():
            link.forget(period)
            self._tell_progress(peer)
            if link.up:
                self.perform(self.agreement.remind(peer))

    def leave(self) -> None:
        """Abort what only this edge could decide: its neighbours go on at once."""
        self.perform(self.agreement.leave())
        self.is_leaving = True
        for peer in self:
            self._tell_progress(peer)

    @property
    def awaits_decision(self) -> bool:
        """Whether this edge has promised to do as a neighbour says, and has not heard it."""
        open_ = self.agreement.open.values()
        return any(t.state is Standing.PREPARED and not t.coordinates for t in open_)

    def head_for(self, period: int) -> None:
        """The next exchanges are those of this period."""
        for link in self.values():
            link.head_for(period)

    def pause(self, is_paused: bool) -> None:
        """Tell the neighbours that the disk does not keep up, or that it does again."""
        if is_paused != self.is_paused:
            self.is_paused = is_paused
            for peer in self:
                self._tell_progress(peer)

    def _tell_progress(self, peer: str) -> None:
        waiting = any(name == peer for name, _ in self.agreement.open)
        self._waiting[peer] = waiting
        progress = v1.Progress(
            done=self.done,
            checkpoint=self._checkpoint,
            waiting=waiting,
            paused=self.is_paused,
            leaving=self.is_leaving,
            counts=self.counts(),
        )
        self[peer].tell(v1.LinkMessage(progress=progress))

    def may_leave(self, is_behind: Callable[[Link], bool]) -> bool:
        """Whether nobody waits for this edge any more, at either end of a link."""
        for peer in self:
            if self._waiting[peer] != any(name == peer for name, _ in self.agreement.open):
                self._tell_progress(peer)
        behind = [link for link in self.values() if link.up and (link.waits or is_behind(link))]
        return not behind and not self.agreement.open


def _decision(action: Action[Change], sha256: bytes) -> v1.Decision:
    assert action.word is not None  # noqa: S101 - by its caller
    return v1.Decision(
        period=action.id.period,
        exchange=action.id.exchange,
        ballot=action.id.ballot,
        word=WORDS[action.word],
        checkpoint=action.checkpoint,
        sha256=sha256,
    )
