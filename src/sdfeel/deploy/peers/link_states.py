"""Which links are up anywhere, and how far everybody is: every edge tells, and passes on what it
hears. What is signed by its edge cannot be invented or changed on the way.

A state replaces those with a lower number; of two with one number from different lives of the edge,
the one of the higher life stays, so all edges keep the same one whatever comes first. Within a life
an edge never uses a number twice. Two states of one life with one number that differ prove that the
edge lies: everybody keeps both, passes them on, and uses none of its links until it signs with
another certificate, or until this edge is restarted.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import networkx as nx

from sdfeel.deploy.facts import facts
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.trust.notary import Notary
from sdfeel.deploy.trust.shared_settings import check_done

__all__ = ["LinkStates"]

Known = tuple[list[str], dict[str, int], tuple[int, int], str]
LONGEST_FILE = 64  # characters of a file's digest
LARGEST = 2**63  # number that is taken over: no clock comes as far


@dataclass
class LinkStates:
    """The newest word of every edge about itself.

    agreed         what all nodes have in common; goes into the signature
    attending      the guests here, and the last period in which they took part
    elsewhere      the same of all other edges
    """

    node: Node
    links: Links
    agreed: str
    attending: Callable[[], dict[str, int]]
    elsewhere: dict[str, int]

    def __post_init__(self) -> None:
        self.me, self.topology = self.node.name, self.node.topology
        self.notary = Notary(self.node.credentials)
        for peer, link in self.links.items():
            link.hooks.vouch = partial(self.vouch, peer)
            link.hooks.state = partial(self.take, origin=peer)
            link.hooks.evidence = partial(self.take_evidence, origin=peer)
            link.hooks.met = partial(self._met, peer, link.hooks.met)
        # Above any number before a restart, unless the clock went back: then neighbours tell it.
        self._number, self._life = time.time_ns(), secrets.randbits(62)
        self._evidence: dict[str, v1.Evidence] = {}
        self._states: dict[str, v1.LinkState] = {}
        self._last: Known | None = None
        self.on_news: Callable[[], None] = lambda: None
        # What turns without rounds need: see `peers.counts`.
        self.steps: Callable[[], float] = lambda: 0.0
        self.on_state: Callable[[v1.LinkState], None] = lambda _: None
        # The deployment file that this edge has, while files differ: see `peers.file_versions`.
        self.file: Callable[[], str] = lambda: ""

    def all(self) -> list[v1.LinkState]:
        return list(self._states.values())

    def _now(self) -> Known:
        up = [peer for peer, link in self.links.items() if link.counts]
        return up, self.attending(), self.notary.stamp, self.file()

    @property
    def is_stale(self) -> bool:
        """Whether something has changed since the others were told."""
        return self._now() != self._last

    def refresh(self) -> None:
        """Tells the others if something has changed."""
        now = self._now()
        if now != self._last:
            self._last = now
            self._keep(self._signed(*now), None)

    def vouch(self, peer: str) -> None:
        """Says to a neighbour how far we are, so that it can tell others who are behind."""
        state = self._signed(*self._now())
        self._states[self.me] = state
        self.links[peer].tell(v1.LinkMessage(state=state))

    def call_witnesses(self) -> None:
        """For neighbours that are behind: our word alone is not enough for them."""
        done = self.links.done - self.topology.tau2
        behind = [peer for peer, link in self.links.items() if link.up and link.done < done]
        for peer, link in self.links.items() if behind else ():
            if peer not in behind:
                link.tell(v1.LinkMessage(vouch=v1.Vouch()))

    def _signed(
        self, up: list[str], clients: dict[str, int], _stamp: tuple[int, int], file: str
    ) -> v1.LinkState:
        self._number += 1
        done = self.links.done
        state = v1.LinkState(edge=self.me, number=self._number, up=up, done=done, clients=clients)
        state.steps, state.life, state.file = self.steps(), self._life, file
        state.certificate, state.signature = self.notary.sign(self._text(state))
        return state

    def _text(self, state: v1.LinkState) -> bytes:
        clients = sorted(state.clients.items())
        fields = (self.agreed, state.edge, state.number, list(state.up), state.done, clients)
        file = (state.file,) if state.file else ()
        return repr((*fields, state.steps, state.life, *file)).encode()

    def take(self, state: v1.LinkState, origin: str) -> None:
        """Keeps a state that is news, and passes it on."""
        known = self._states.get(state.edge)
        contradicts = known is not None and self._contradict(known, state)
        if known is not None and _rank(known) >= _rank(state) and not contradicts:
            return
        if not self._is_good(state, origin):
            return
        if state.edge == self.me:
            self._continue_above(state)
        elif contradicts:
            self._bar(v1.Evidence(first=known, second=state), origin)
        else:
            self._readmit(state)
            self._keep(state, origin)

    def _is_good(self, state: v1.LinkState, origin: str) -> bool:
        try:
            self._check(state)
        except Refused as refusal:
            kind, reason = refusal.kind, refusal.reason
            self.node.tell(facts.MessageRefused(kind=kind, reason=reason, peer=origin))
            return False
        return True

    def _continue_above(self, state: v1.LinkState) -> None:
        """After a restart with a clock that went back, others know a later number of ours."""
        if state.life != self._life and self._number <= state.number < LARGEST:
            self._number = state.number
            self.declare()

    # Evidence.

    def _contradict(self, first: v1.LinkState, second: v1.LinkState) -> bool:
        is_same = first.edge == second.edge and _rank(first) == _rank(second)
        return is_same and self._text(first) != self._text(second)

    def take_evidence(self, evidence: v1.Evidence, origin: str) -> None:
        """Check both states, and use no link of the edge that has signed them."""
        first, second = evidence.first, evidence.second
        if first.edge in self._evidence or first.edge == self.me:
            return
        if not self._contradict(first, second):
            reason = "two states that do not contradict each other"
            self.node.tell(facts.MessageRefused(kind="gossip", reason=reason, peer=origin))
        elif self._is_good(first, origin) and self._is_good(second, origin):
            self._bar(evidence, origin)

    def _bar(self, evidence: v1.Evidence, origin: str) -> None:
        edge = evidence.first.edge
        if edge in self._evidence:
            return
        self._evidence[edge] = evidence
        self._set_barred(edge, True)
        number = evidence.first.number
        self.node.tell(facts.Contradiction(edge=edge, number=number, peer=origin))
        for peer, link in self.links.items():
            if peer != origin:
                link.tell(v1.LinkMessage(evidence=evidence))

    def _readmit(self, state: v1.LinkState) -> None:
        """An edge that signs with another certificate has been looked at by an operator."""
        evidence = self._evidence.get(state.edge)
        if evidence is None:
            return
        if state.certificate not in (evidence.first.certificate, evidence.second.certificate):
            del self._evidence[state.edge]
            self._set_barred(state.edge, False)

    def _set_barred(self, edge: str, is_barred: bool) -> None:
        self.links.barred.discard(edge)
        if is_barred:
            self.links.barred.add(edge)
        if edge in self.links:
            self.links[edge].is_barred = is_barred
        self.node.signal.notify()

    def _met(self, peer: str, met: Callable[[v1.Hello], None], hello: v1.Hello) -> None:
        met(hello)
        for evidence in self._evidence.values():
            self.links[peer].tell(v1.LinkMessage(evidence=evidence))

    def _check(self, state: v1.LinkState) -> None:
        if state.edge not in self.topology.at(state.done).edges:
            raise Refused("gossip", f"a word of an edge {state.edge!r} that does not exist")
        neighbours = self.topology.at(state.done).neighbours(state.edge)
        if len(state.up) > len(neighbours) or not set(state.up) <= set(neighbours):
            raise Refused("gossip", f"{state.edge} has no such links")
        if not set(state.clients) <= self.topology.at(state.done).allowed(state.edge):
            raise Refused("gossip", f"{state.edge} has clients that are not on its list")
        check_done(state.done, self.topology.plan(state.edge))
        if state.steps and not 1 <= state.steps <= self.topology.deployment.most_steps:
            raise Refused("gossip", f"{state.edge} has clients that make {state.steps} steps")
        if len(state.file) > LONGEST_FILE:
            raise Refused("gossip", f"{state.edge} has a file with a long name")
        text = self._text(state)
        self.notary.check(text, state.certificate, state.signature, state.edge)

    def _keep(self, state: v1.LinkState, origin: str | None) -> None:
        """Links and turns concern everybody; how far an edge is in rounds, only its neighbours and
        those that are behind.
        """
        before = self._states.get(state.edge)
        is_news = origin is None or before is None or _changed(before, state)
        self._states[state.edge] = state
        for peer, link in self.links.items():
            if peer != origin and (is_news or link.done < state.done):
                link.tell(v1.LinkMessage(state=state))
        if (before is not None and before.clients) or state.clients:
            self._count_clients()
            self.on_news()
        self.on_state(state)

    def _count_clients(self) -> None:
        self.elsewhere.clear()
        for edge, state in self._states.items():
            for client, period in state.clients.items() if edge != self.me else ():
                self.elsewhere[client] = max(period, self.elsewhere.get(client, 0))

    def up(self) -> set[tuple[str, str]]:
        """The links that both ends call up."""
        good = [state for edge, state in self._states.items() if edge not in self._evidence]
        claims = {(state.edge, peer) for state in good for peer in state.up}
        return {(a, b) for a, b in claims if (b, a) in claims}

    def reached(self) -> int:
        """A period that others have finished, for sure.

        One edge may say anything: two must have said it, unless there is only one other.
        """
        ranked = sorted(self.others().values(), reverse=True)
        enough = min(2, len(self.topology.at(self.links.done).edges) - 1)
        return ranked[enough - 1] if len(ranked) >= enough > 0 else 0

    def declare(self) -> None:
        """Tells everybody how far we are."""
        self._keep(self._signed(*self._now()), None)

    def others_states(self) -> list[v1.LinkState]:
        return [state for edge, state in self._states.items() if edge != self.me]

    def told(self) -> dict[str, int]:
        """How far edges were when they last said so."""
        return {state.edge: state.done for state in self.others_states()}

    def others(self) -> dict[str, int]:
        """How far the edges are that are in reach, in our own periods."""
        graph = nx.Graph(self.up())
        graph.add_node(self.me)
        part = nx.node_connected_component(graph, self.me)
        known = {edge: state.done for edge, state in self._states.items() if edge in part}
        known.pop(self.me, None)
        for peer, link in self.links.items():
            if link.up:
                known[peer] = max(link.done, known.get(peer, 0))
        counted = self.topology.counted
        return {edge: counted(done, edge, self.me) for edge, done in known.items()}


def _rank(state: v1.LinkState) -> tuple[int, int]:
    return state.number, state.life


def _changed(before: v1.LinkState, after: v1.LinkState) -> bool:
    has_turned = bool(after.steps) and after.done != before.done
    has_links = list(before.up) != list(after.up) or before.file != after.file
    return has_turned or has_links or dict(before.clients) != dict(after.clients)
