"""From looks at edges to sentences: what happened, why, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("grpc", reason="the deployment comes with sdfeel[deploy]")

from sdfeel.deploy.operate.status import EdgeStatus
from sdfeel.page.events import Events

NORTH = EdgeStatus(
    "north", period=3, periods=9, phase="collecting", clients=("c1", "c2"), expected=2,
    links={"south": "up 3+0"}, seconds_per_period=0.1,
)  # fmt: skip
SOUTH = replace(NORTH, name="south", clients=("c3",), expected=1, links={"north": "up 3+0"})
GONE = EdgeStatus("north", problem="UNAVAILABLE: Connection refused")
REFUSED = "nothing listens at its address (UNAVAILABLE: Connection refused)"


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def events(time: Time) -> Events:
    made = Events({"north": ["c1", "c2"], "south": ["c3"]}, now=time)
    made.take([NORTH, SOUTH])
    assert not made.list, "all is well"
    return made


def test_a_lost_edge_is_the_cause_of_the_lost_link(events: Events, time: Time) -> None:
    lost = replace(SOUTH, links={"north": "down 3+1"})
    events.take([GONE, lost])
    events.take([GONE, lost])
    said = [(e.what, e.cause) for e in events.list]
    assert said == [
        ("north stopped answering", REFUSED),
        ("south lost north", f"north does not answer: {REFUSED}"),
    ]
    time.now += 8
    events.take([NORTH, replace(SOUTH, period=4)])
    assert [e.ended - e.began for e in events.list] == [8, 8]


def test_a_cut_link_is_told_from_a_dead_edge(events: Events) -> None:
    """Not by an answer of before the loss: the edge may have died since."""
    lost = replace(NORTH, links={"south": "down 3+1"})
    events.take([lost, SOUTH])
    said = [("north lost south", "south is asked whether it is there")]
    assert [(e.what, e.cause) for e in events.list] == said
    events.take([lost, replace(SOUTH)])
    said = [("north lost south", "south answers us: the way between the two is cut")]
    assert [(e.what, e.cause) for e in events.list] == said


def test_what_was_never_there_has_not_been_lost(time: Time) -> None:
    """A deployment that begins: edges answer one after the other, then meet, then clients come."""
    events = Events({"north": ["c1", "c2"], "south": ["c3"]}, now=time)
    north = replace(NORTH, period=0, clients=(), links={"south": "down 0+0"}, phase="gathering")
    north = replace(north, seconds_per_period=0.0)
    silent = EdgeStatus("south", problem="UNAVAILABLE: Connection refused")
    for _ in range(2):
        time.now += 30  # far longer than a period: but nobody knows yet how long one takes
        events.take([north, silent])
    south = replace(north, name="south", links={"north": "down 0+0"}, expected=1)
    events.take([north, south])
    events.take([replace(north), replace(south)])
    said = [(e.what, e.cause, e.ended is None) for e in events.list]
    late = "it has not come since this page began to look"
    assert said == [
        ("south does not answer", REFUSED, False),
        ("c1 is not at north", late, True),
        ("c2 is not at north", late, True),
        ("north has no link to south", "south answers us: the way between the two is cut", True),
        ("south has no link to north", "north answers us: the way between the two is cut", True),
        ("c3 is not at south", late, True),
    ]
    events.take([NORTH, SOUTH])
    assert all(e.ended is not None for e in events.list)
    assert {e.back for e in events.list} == {"answers", "came", "met"}


def test_the_frozen_is_told_from_the_dead(events: Events) -> None:
    events.take([replace(GONE, problem="DEADLINE_EXCEEDED: Deadline Exceeded"), SOUTH])
    assert [e.cause for e in events.list] == [
        "it is frozen, overloaded or cut off (DEADLINE_EXCEEDED: Deadline Exceeded)"
    ]


def test_clients_that_leave_or_visit(events: Events) -> None:
    events.take([replace(NORTH, clients=("c1",)), replace(SOUTH, clients=("c3", "c2"))])
    assert [(e.what, e.cause) for e in events.list] == [("c2 left north", "it is a guest of south")]
    events.take([replace(NORTH, clients=()), SOUTH])
    assert [e.cause for e in events.list] == ["its stream has ended", "its stream has ended"][:2]


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (replace(NORTH, clients=("c1",)), "waits for c2, not there"),
        (replace(NORTH, clients=()), "none of its 2 clients is there"),
        (replace(NORTH, phase="exchanging"), "waits for south, whose models have not come"),
        (replace(NORTH, phase="paused", warnings=("state disk: full",)), "state disk: full"),
    ],
)
def test_every_stall_has_its_reason(events: Events, time: Time, row: EdgeStatus, cause) -> None:
    events.take([row, SOUTH])
    time.now += 3
    south = replace(SOUTH, period=SOUTH.period if row.phase == "exchanging" else 4)
    events.take([row, replace(south, phase="finished")])
    stall = [e for e in events.list if e.what.startswith("north stalls")]
    assert [e.cause for e in stall] == [cause]


def test_counts_and_the_end_have_no_length(events: Events) -> None:
    events.take([replace(NORTH, refused=2, late=1, phase="finished", period=9), SOUTH])
    assert [e.what for e in events.list] == [
        "north refused 2 upload(s)", "1 upload(s) came late to north", "north finished",
    ]  # fmt: skip
    assert all(e.ended == e.began for e in events.list)


def test_a_warning_that_counts_hours_is_one_incident(events: Events, time: Time) -> None:
    """Its words are the newest; another warning of the same edge is another incident."""
    renew = "`sdfeel provision FILE --node north` renews it"
    for period, left in enumerate((6.0, 5.9, 5.8), start=4):
        time.now += 360
        ends = f"the certificate ends in {left} h; {renew}"
        events.take([replace(NORTH, period=period, warnings=(ends, "state disk: full"))])
    assert [(e.cause, e.ended) for e in events.list] == [(ends, None), ("state disk: full", None)]
    events.take([replace(NORTH, period=9)])
    assert all(e.ended == time.now for e in events.list)
