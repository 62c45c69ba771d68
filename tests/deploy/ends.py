"""Edges that exchange numbers by the real `Agreement`, over streams that break when told to.

A tree of edges makes all-reduces (two edges: one link, as in an exchange of eq. (5)). Whoever holds
a `Trial` decides what happens next: a message arrives, or arrives twice, a stream breaks, a timer
runs out, an edge saves, dies, comes back. Nobody learns anything here, so the weighted mean of the
models must be the same number for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from sdfeel.deploy.peers.agreement import Agreement, Do, Id, Standing, Transaction, Word
from sdfeel.deploy.peers.agreement_notes import dump, load

Message = tuple[Any, ...]


@dataclass
class Disk:
    done: int
    model: Fraction
    notes: dict[str, Any]
    changes: list[Fraction]

    def __post_init__(self) -> None:
        self.key = repr((self.done, self.model, self.notes, self.changes))


@dataclass
class Edge:
    """One edge: what it knows of the exchange that it is in."""

    name: str
    share: Fraction
    mass: Fraction
    parent: str | None
    children: tuple[str, ...]
    model: Fraction
    agreement: Agreement[Fraction]
    disk: Disk
    life: int = 1
    done: int = 0
    alive: bool = True
    busy: bool = False
    over: bool = False  # the exchange has ended and nothing is saved yet
    saving: Disk | None = None
    ups: dict[str, Fraction] = field(default_factory=dict)
    up: Fraction | None = None
    mean: Fraction | None = None
    id: Id | None = None
    above: Transaction[Fraction] | None = None
    below: dict[str, Transaction[Fraction]] = field(default_factory=dict)


def _shallow(thing: Any) -> Any:
    """As `copy.copy`, without looking for how: a walk through all orders makes millions."""
    other = object.__new__(type(thing))
    other.__dict__.update(thing.__dict__)
    return other


def _copied(edge: Edge) -> Edge:
    other, known = _shallow(edge), _shallow(edge.agreement)
    moved = {id(t): _shallow(t) for t in known.open.values()}
    for t in (*edge.below.values(), *([edge.above] if edge.above else [])):
        if id(t) not in moved:
            moved[id(t)] = _shallow(t)
    known.owed, known.settled = list(known.owed), dict(known.settled)
    known.open = {key: moved[id(t)] for key, t in known.open.items()}
    known._peers = {name: _shallow(peer) for name, peer in known._peers.items()}
    other.agreement, other.ups = known, dict(edge.ups)
    other.above = None if edge.above is None else moved[id(edge.above)]
    other.below = {name: moved[id(t)] for name, t in edge.below.items()}
    return other


def _key(edge: Edge) -> tuple[Any, ...]:
    known = edge.agreement
    disk, saving = edge.disk, edge.saving
    mine = (*known.open.values(), *edge.below.values(), *([edge.above] if edge.above else []))
    return (
        (edge.alive, edge.busy, edge.over, edge.life, edge.model, edge.mean, edge.up, edge.id),
        (disk.key, saving and saving.key),
        tuple((t.peer, t.id, t.state, t.vote, t.life, t.without, t.own, t.used) for t in mine),
        (tuple(known.settled), tuple(each.change for each in known.owed), known.checkpoint),
        tuple((name, peer.life, peer.checkpoint) for name, peer in known._peers.items()),
        tuple(edge.ups.items()),
    )


class Trial:
    """The edges, their streams, and the invariant."""

    def __init__(self, parents: dict[str, str | None], shares: dict[str, int]) -> None:
        total = sum(shares.values())
        kids = {name: tuple(c for c, p in parents.items() if p == name) for name in parents}

        def mass(name: str) -> Fraction:
            return Fraction(shares[name], total) + sum(map(mass, kids[name]), Fraction(0))

        self.edges: dict[str, Edge] = {}
        for number, (name, parent) in enumerate(parents.items()):
            model = Fraction(10**number)
            agreement: Agreement[Fraction] = Agreement(ballot=1000 * (number + 1))
            changes: list[Fraction] = []
            disk = Disk(0, model, dump(agreement, changes), changes)
            share = Fraction(shares[name], total)
            self.edges[name] = Edge(
                name, share, mass(name), parent, kids[name], model, agreement, disk
            )
        self.links = [(p, c) for c, p in parents.items() if p is not None]
        self.up = dict.fromkeys(self.links, False)
        self.flying: dict[tuple[str, str], deque[Message]] = {}
        for a, b in self.links:
            self.flying[a, b], self.flying[b, a] = deque(), deque()
        self.first = self.mean()
        self.acts: dict[Do, int] = {}

    def mean(self) -> Fraction:
        return sum((e.share * e.model for e in self.edges.values()), Fraction(0))

    # What may happen.

    def moves(self) -> list[Message]:
        """Everything that could happen next."""
        found: list[Message] = []
        for link, is_up in self.up.items():
            if is_up:
                found.append(("cut", *link))
            elif all(self.edges[name].alive for name in link):
                found.append(("connect", *link))
        found += [("deliver", *way) for way, queue in self.flying.items() if queue]
        for name, edge in self.edges.items():
            if not edge.alive:
                found.append(("restart", name))
                continue
            found.append(("crash", name))
            if edge.busy:
                found.append(("deadline", name))
            elif edge.saving is not None:
                found.append(("saved", name))
            elif edge.over:
                found.append(("save", name))
            else:
                found.append(("start", name))
        return found

    def do(self, move: Message) -> None:
        getattr(self, f"_{move[0]}")(*move[1:])

    def clone(self) -> Trial:
        """As `deepcopy` would, twenty times as fast."""
        other = _shallow(self)
        other.up, other.acts = dict(self.up), dict(self.acts)
        other.flying = {way: deque(queue) for way, queue in self.flying.items()}
        other.edges = {name: _copied(edge) for name, edge in self.edges.items()}
        return other

    def key(self) -> tuple[Any, ...]:
        """Two trials with the same key are in the same situation."""
        flying = tuple(tuple(queue) for queue in self.flying.values())
        return (*self.up.values(), *flying, *(_key(edge) for edge in self.edges.values()))

    def _cut(self, a: str, b: str) -> None:
        """What was on its way is gone, both ways."""
        if not self.up[a, b]:
            return
        self.up[a, b] = False
        self.flying[a, b].clear()
        self.flying[b, a].clear()
        for me, peer in ((a, b), (b, a)):
            if self.edges[me].alive:
                self._act(self.edges[me], self.edges[me].agreement.lost(peer))
                self._look(self.edges[me])

    def _connect(self, a: str, b: str) -> None:
        self.up[a, b] = True
        for me, peer in ((a, b), (b, a)):
            other = self.edges[peer]
            hello = ("hello", other.life, other.disk.notes["checkpoint"])
            self.flying[peer, me].append(hello)

    def _deliver(self, a: str, b: str) -> None:
        self._take(self.edges[b], a, self.flying[a, b].popleft())

    def _repeat(self, a: str, b: str) -> None:
        """The message arrives, and will arrive again."""
        if self.flying[a, b][0][0] != "hello":
            self._take(self.edges[b], a, self.flying[a, b][0])

    def _crash(self, name: str) -> None:
        edge = self.edges[name]
        for link in self.links:
            if name in link:
                self._cut(*link)
        edge.alive = edge.busy = edge.over = False
        edge.saving = None

    def _restart(self, name: str) -> None:
        edge = self.edges[name]
        edge.alive = True
        edge.life += 1
        edge.done, edge.model = edge.disk.done, edge.disk.model
        edge.agreement = Agreement(ballot=edge.agreement.ballot + 100)
        load(edge.agreement, edge.disk.notes, edge.disk.changes)
        self._clear(edge)

    def _clear(self, edge: Edge) -> None:
        edge.ups, edge.up, edge.mean, edge.above, edge.below = {}, None, None, None, {}

    def _start(self, name: str) -> None:
        edge = self.edges[name]
        edge.busy = True
        self._clear(edge)
        self._advance(edge)

    def _deadline(self, name: str) -> None:
        edge = self.edges[name]
        if edge.above is not None and edge.above.state is Standing.PREPARED:
            self._act(edge, edge.agreement.deadline(edge.above))
            for transaction in edge.below.values():
                self._act(edge, edge.agreement.deadline(transaction))
        else:
            self._give_up(edge)
        self._end(edge)

    def _give_up(self, edge: Edge) -> None:
        for transaction in edge.below.values():
            self._act(edge, edge.agreement.abort(transaction))

    def _save(self, name: str) -> None:
        edge = self.edges[name]
        while edge.agreement.owed:
            edge.model += edge.agreement.owed.pop(0).change
        changes: list[Fraction] = []
        notes = dump(edge.agreement, changes)
        edge.saving = Disk(edge.done + edge.over, edge.model, notes, changes)

    def _saved(self, name: str) -> None:
        """Durable."""
        edge = self.edges[name]
        assert edge.saving is not None
        edge.disk, edge.saving, edge.over = edge.saving, None, False
        edge.done = edge.disk.done
        for peer in (*edge.children, *([edge.parent] if edge.parent else [])):
            self._send(edge, peer, "progress", edge.disk.notes["checkpoint"])
            if self._is_up(name, peer):
                self._act(edge, edge.agreement.remind(peer))

    # An edge at work.

    def _is_up(self, a: str, b: str) -> bool:
        return self.up.get((a, b), False) or self.up.get((b, a), False)

    def _send(self, edge: Edge, peer: str, *message: Any) -> None:
        if self._is_up(edge.name, peer):
            self.flying[edge.name, peer].append(message)

    def _act(self, edge: Edge, actions: list[Any]) -> None:
        for action in actions:
            self.acts[action.do] = self.acts.get(action.do, 0) + 1
            if action.word is not None:
                self._send(edge, action.peer, action.word, action.id, action.checkpoint)

    def _take(self, edge: Edge, peer: str, message: Message) -> None:
        kind, *rest = message
        if kind == "hello":
            self._act(edge, edge.agreement.met(peer, *rest))
        elif kind == "progress":
            edge.agreement.progress(peer, *rest)
        elif isinstance(kind, Word):
            id_, checkpoint = rest
            self._act(edge, edge.agreement.hear(peer, kind, id_, checkpoint))
        elif edge.busy and rest[0] == edge.done + 1:
            if kind == "up":
                edge.ups[peer] = rest[1]
            elif edge.mean is None and edge.up is not None:
                edge.mean = rest[1]
                edge.below = {c: edge.agreement.begin(c, rest[2]) for c in edge.children}
                self._hand_down(edge, rest[2])
        self._look(edge)

    def _look(self, edge: Edge) -> None:
        if edge.busy:
            self._advance(edge)

    def _advance(self, edge: Edge) -> None:
        """Whatever the exchange can do now."""
        period = edge.done + 1
        if edge.up is None and set(edge.ups) == set(edge.children):
            masses = {c: self.edges[c].mass for c in edge.children}
            total = edge.share * edge.model + sum(masses[c] * edge.ups[c] for c in masses)
            edge.up = total / edge.mass
            if edge.parent is not None:
                self._send(edge, edge.parent, "up", period, edge.up)
            else:
                edge.mean = edge.up
                id_ = edge.agreement.draw(period, 0)
                edge.below = {c: edge.agreement.begin(c, id_) for c in edge.children}
                self._hand_down(edge, id_)
        for child, transaction in edge.below.items():
            if transaction.state is Standing.ACTIVE and transaction.vote is not None:
                assert edge.mean is not None
                flow = self.edges[child].mass * (edge.ups[child] - edge.mean)
                edge.agreement.voted(transaction, flow / edge.share)
        if edge.mean is None:
            return
        states = {transaction.state for transaction in edge.below.values()}
        if edge.above is not None:
            if edge.above.state is not Standing.PREPARED:
                self._end(edge)
        elif Standing.UNKNOWN in states:
            self._give_up(edge)
            self._end(edge)
        elif states <= {Standing.PREPARED}:
            self._all_voted(edge)

    def _hand_down(self, edge: Edge, id_: Id) -> None:
        for child in edge.children:
            self._send(edge, child, "down", edge.done + 1, edge.mean, id_)
        edge.id = id_

    def _all_voted(self, edge: Edge) -> None:
        if edge.parent is None:
            for transaction in edge.below.values():
                self._act(edge, edge.agreement.commit(transaction))
            self._end(edge)
            return
        assert edge.mean is not None
        assert edge.up is not None
        flow = edge.mass * (edge.mean - edge.up)
        assert edge.id is not None
        edge.above, actions = edge.agreement.prepare(edge.parent, edge.id, flow / edge.share)
        self._act(edge, actions)

    def _end(self, edge: Edge) -> None:
        edge.busy, edge.over = False, True
        mine = [*edge.below.values(), *([edge.above] if edge.above else [])]
        for transaction in mine:
            if transaction.used:
                assert transaction.change is not None
                edge.model += transaction.change

    # Calm.

    def heal(self) -> None:
        """Everybody comes back, every message arrives, everything owed is paid and saved."""
        for edge in self.edges.values():
            if not edge.alive:
                self._restart(edge.name)
        for link in self.links:
            if not self.up[link]:
                self._connect(*link)
        for _ in range(6):
            self._deliver_all()
            for edge in self.edges.values():
                if edge.busy:
                    self._deadline(edge.name)
                if edge.saving is None:
                    self._save(edge.name)
                self._saved(edge.name)
            self._deliver_all()
            if not any(e.agreement.owed or e.agreement.open for e in self.edges.values()):
                return

    def _deliver_all(self) -> None:
        while any(self.flying.values()):
            for way, queue in self.flying.items():
                if queue:
                    self._deliver(*way)

    def check(self) -> None:
        """From here on, calm makes everything good."""
        calm = self.clone()
        calm.heal()
        assert calm.mean() == self.first, f"{float(self.first)} -> {float(calm.mean())}"
        for edge in calm.edges.values():
            assert not edge.agreement.owed
            assert not edge.agreement.open, edge.agreement.open
