"""What edges tell each other about links and progress: known names only, bounded, signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from ended import issue_ended
from harness import deploy

from sdfeel.deploy.facts.facts import Contradiction, Fact, MessageRefused
from sdfeel.deploy.facts.metrics import Metrics
from sdfeel.deploy.node import Node
from sdfeel.deploy.peers.agreement import Agreement
from sdfeel.deploy.peers.link_states import LinkStates
from sdfeel.deploy.peers.links import Links
from sdfeel.deploy.protocol import v1
from sdfeel.deploy.refused import Refused
from sdfeel.deploy.topology import Topology
from sdfeel.deploy.trust.identity import Credentials
from sdfeel.deploy.trust.notary import Notary
from sdfeel.deploy.trust.provision import Authority, provision
from sdfeel.deploy.waiting import Background, Signal

PERIODS = 6


class Town:
    """The link states of a ring of four edges, with their certificates."""

    def __init__(self, folder: Path) -> None:
        self.deployment = deploy(folder, sizes=(1, 1, 1, 1), periods=PERIODS)
        self.topology = Topology(self.deployment)
        self.refused: list[str] = []
        self.facts: list[Fact] = []
        self.told: list[tuple[str, v1.LinkState]] = []

    def edge(self, name: str, certificate: str | None = None, role: str = "edge") -> LinkStates:
        node = Node(
            name, self.topology, Credentials(self.deployment, role, certificate or name), Path(),
            3, self.hear, Metrics(), Signal(), Background(),
        )  # fmt: skip
        links = Links(node, Agreement(), 0)
        for peer, link in links.items():
            link.tell = lambda message, peer=peer: self.told.append((peer, message.state))  # type: ignore[method-assign, misc]
        return LinkStates(node, links, "agreed", dict, {})

    def hear(self, fact: Fact) -> None:
        self.facts.append(fact)
        if isinstance(fact, MessageRefused):
            self.refused.append(fact.kind)

    def state(self, name: str, **changed: Any) -> v1.LinkState:
        """As this edge signs it, then changed."""
        states = self.edge(name)
        states.links.done = 2
        states.refresh()
        (state,) = states.all()
        for field, value in changed.items():
            if field == "clients":
                state.clients.update(value)
            elif field == "up":
                del state.up[:]
                state.up.extend(value)
            else:
                setattr(state, field, value)
        return state


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town(tmp_path)


def test_what_an_edge_signed_is_kept_and_passed_on(town: Town) -> None:
    a = town.edge("a")
    state = town.state("c")
    town.told.clear()
    a.take(state, "b")
    assert a.all() == [state]
    assert town.told == [("d", state)], "not back to where it came from"
    a.take(state, "d")
    assert len(town.told) == 1, "once only"
    assert not town.refused


@pytest.mark.parametrize(
    "changed",
    [
        {"up": ["b", "d"]},
        {"done": PERIODS},
        {"clients": {"c2": 3}},
        {"number": 2**63},
        {"edge": "d"},
        {"signature": b""},
        {"signature": b"x" * 70},
        {"certificate": b""},
        {"certificate": b"x" * 500},
        {"certificate": bytes(10**5)},
    ],
    ids=lambda changed: f"{next(iter(changed))}-{str(next(iter(changed.values())))[:8]}",
)
def test_what_was_changed_on_the_way_is_refused(town: Town, changed: dict[str, Any]) -> None:
    a = town.edge("a")
    a.take(town.state("c", **changed), "b")
    assert town.refused == ["signature"]
    assert a.all() == []


@pytest.mark.parametrize(
    "state",
    [
        v1.LinkState(edge="x" * 5000, number=1),
        v1.LinkState(edge="nobody", number=1),
        v1.LinkState(edge="c", number=1, up=["a"]),
        v1.LinkState(edge="c", number=1, up=["b"] * 10_000),
        v1.LinkState(edge="c", number=1, up=["b", "z"]),
        v1.LinkState(edge="c", number=1, done=PERIODS + 1),
        v1.LinkState(edge="c", number=1, clients={"nobody": 1}),
        v1.LinkState(edge="c", number=1, clients={"c0": 1}),
    ],
    ids=[
        "long-name",
        "unknown",
        "no-such-link",
        "flood",
        "unknown-link",
        "beyond",
        "unknown-client",
        "anothers-client",
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_kept(town: Town, state: v1.LinkState) -> None:
    a = town.edge("a")
    a.take(state, "b")
    assert town.refused == ["period" if state.done else "gossip"]
    assert a.all() == []


def test_an_edge_signs_for_itself_only(town: Town) -> None:
    """d's certificate, which is good, under a word about c; and a client's."""
    forged = town.edge("c", certificate="d")
    forged.refresh()
    a = town.edge("a")
    a.take(*forged.all(), "d")
    assert town.refused == ["signature"]
    client = town.edge("c", certificate="c0", role="client")
    client.refresh()
    a.take(*client.all(), "d")
    assert town.refused == ["signature"] * 2
    assert a.all() == []


def test_a_forged_word_with_the_largest_number_does_not_stay(town: Town) -> None:
    a = town.edge("a")
    a.take(town.state("c", number=2**64 - 1), "b")
    honest = town.state("c")
    a.take(honest, "b")
    assert a.all() == [honest]


def test_a_flood_of_invented_names_leaves_nothing_behind(town: Town) -> None:
    a = town.edge("a")
    for number in range(3000):
        a.take(v1.LinkState(edge=f"edge-{number}", number=1, up=["x" * 100]), "b")
    assert a.all() == []
    assert set(town.refused) == {"gossip"}


def test_of_another_ca_expired_or_revoked(town: Town, tmp_path: Path) -> None:
    a = town.edge("a")
    folder = town.deployment.path(town.deployment.security.folder)
    state = town.state("c")
    Authority(folder).revoke([("edge", "c")])
    a.take(state, "b")
    assert town.refused == ["revoked"]
    issue_ended(folder, "edge", "c")
    a.take(town.state("c"), "b")
    assert town.refused[1:] == ["expired"]
    other = Authority.create(tmp_path / "other", "test")
    other.issue("edge", "c")
    (folder / "edge" / "c.pem").write_bytes((tmp_path / "other" / "edge" / "c.pem").read_bytes())
    a.take(town.state("c"), "b")
    assert town.refused[2:] == ["signature"]
    assert a.all() == []


def test_a_renewed_certificate_signs_from_then_on(town: Town) -> None:
    c = town.edge("c")
    c.refresh()
    (before,) = c.all()
    provision(town.deployment, only="c")
    c.refresh()
    (after,) = c.all()
    assert before.certificate != after.certificate
    a = town.edge("a")
    a.take(after, "b")
    assert a.all() == [after]


def test_a_signature_is_of_one_deployment(town: Town) -> None:
    state = town.state("c")
    a = town.edge("a")
    a.agreed = "another run"
    a.take(state, "b")
    assert town.refused == ["signature"]


def test_refused_says_who(town: Town) -> None:
    notary = Notary(Credentials(town.deployment, "edge", "a"))
    certificate, signature = notary.sign(b"text")
    notary.check(b"text", certificate, signature, "a")
    with pytest.raises(Refused, match="edge/a signs for edge/b"):
        notary.check(b"text", certificate, signature, "b")


# Two states under one number.


def pair(town: Town, name: str) -> tuple[v1.LinkState, v1.LinkState]:
    """What an edge that lies signs twice, in one life and with one number."""
    states = town.edge(name)
    signed = []
    for done in (2, 3):
        states._number, states.links.done = 5, done
        states.declare()
        signed += states.all()
    return signed[0], signed[1]


def test_two_states_with_one_number_bar_the_edge_everywhere(town: Town) -> None:
    first, second = pair(town, "d")
    a, b = town.edge("a"), town.edge("b")
    town.told.clear()
    a.take(first, "d")
    a.links["d"]._stream = cast(Any, object())
    assert a.links["d"].up
    a.take(second, "b")
    assert a.links.barred == {"d"}
    assert not a.links["d"].up
    (passed_on,) = a._evidence.values()
    assert (passed_on.first, passed_on.second) == (first, second)
    b.take_evidence(passed_on, "a")
    assert b.links.barred == {"d"}
    assert town.facts[-1] == Contradiction(edge="d", number=6, peer="a")
    b.take_evidence(passed_on, "c")
    assert len([fact for fact in town.facts if isinstance(fact, Contradiction)]) == 2, "told once"
    assert not town.refused


def test_a_new_certificate_ends_it(town: Town) -> None:
    a = town.edge("a")
    for state in pair(town, "d"):
        a.take(state, "d")
    a.take(town.state("d"), "d")
    assert a.links.barred == {"d"}, "the same certificate"
    provision(town.deployment, only="d")
    a.take(town.state("d"), "d")
    assert not a.links.barred


def test_evidence_cannot_be_invented(town: Town) -> None:
    """A changed state; one state twice; states of two lives, which a restart makes."""
    a, state = town.edge("a"), town.state("c")
    changed = v1.LinkState.FromString(state.SerializeToString())
    changed.done = 4
    a.take_evidence(v1.Evidence(first=state, second=changed), "b")
    a.take_evidence(v1.Evidence(first=changed, second=state), "b")
    a.take_evidence(v1.Evidence(first=state, second=state), "b")
    lives = [town.edge("c"), town.edge("c")]
    for done, life in enumerate(lives):
        life._number, life.links.done = 5, done
        life.declare()
    (first,), (second,) = (life.all() for life in lives)
    a.take_evidence(v1.Evidence(first=first, second=second), "b")
    assert not a.links.barred
    assert town.refused == ["signature", "signature", "gossip", "gossip"]


def test_of_two_lives_with_one_number_all_keep_the_same_state(town: Town) -> None:
    lives = [town.edge("c"), town.edge("c")]
    for done, life in enumerate(lives):
        life._number, life.links.done = 5, done
        life.declare()
    signed = [state for life in lives for state in life.all()]
    a, d = town.edge("a"), town.edge("d")
    for state in signed:
        a.take(state, "b")
    for state in reversed(signed):
        d.take(state, "a")
    assert a.all() == d.all() == [max(signed, key=lambda state: state.life)]


def test_a_clock_that_went_back_does_not_silence_an_edge(town: Town) -> None:
    """It continues above the number that its neighbours know of its last life."""
    before, a = town.edge("c"), town.edge("a")
    before._number += 10**15
    before.declare()
    (last,) = before.all()
    a.take(last, "b")
    now = town.edge("c")
    now.declare()
    a.take(*now.all(), "b")
    assert a.all() == [last], "it is taken for an old one"
    now.take(last, "b")
    (above,) = now.all()
    assert above.number > last.number
    a.take(above, "b")
    assert a.all() == [above]
