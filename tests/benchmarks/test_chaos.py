"""What a chaos run says of its logs, without one."""

from __future__ import annotations

import signal

import pytest

import chaos
from chaos import Chaos, longest_gap, period_lines, summary


def line(time: float, node: str, period: int, *clients: str, event: str = "period"):
    return {
        "time": time, "node": node, "event": event, "period": period, "participants": list(clients)
    }  # fmt: skip


def test_a_period_that_was_made_again_counts_once() -> None:
    lines = [
        line(3.0, "a", 2, "c0"), line(1.0, "a", 1, "c0"), line(2.0, "b", 1),
        line(5.0, "a", 2, "c0"), line(4.0, "a", 2, event="exchange"),
    ]  # fmt: skip
    assert [(x["time"], x["node"], x["period"]) for x in period_lines(lines)] == [
        (1.0, "a", 1), (2.0, "b", 1), (3.0, "a", 2),
    ]  # fmt: skip


def test_periods_count_where_somebody_in_the_network_took_part() -> None:
    periods = [
        line(1.0, "a", 1, "c0", "c1"), line(1.0, "b", 1),  # a client of the other edge did
        line(2.0, "a", 2), line(2.5, "b", 2),  # nobody did
        line(9.0, "a", 3, "c0"), line(11.0, "b", 3, "c2"),  # the second one is too late
    ]  # fmt: skip
    found = summary(periods, 0.0, 10.0)
    assert (found["uploads"], found["uploads_per_second"]) == (3, 0.3)
    assert (found["periods"], found["periods_per_second"]) == (5, 0.3)
    assert (found["empty_periods"], found["empty_in_network"]) == (3, 1)
    assert found["longest_gap"] == 8.0
    assert found["longest_gap_of_an_edge"] == 7.5


def test_the_longest_gap_includes_the_ends() -> None:
    assert longest_gap([0.0, 1.0, 5.0]) == 4.0


class First:
    """Chance that always takes the first name and the longest time."""

    def choice(self, names: list[str]) -> str:
        return names[0]

    def uniform(self, _low: float, high: float) -> float:
        return high


class Pretended:
    """Nodes that end when and as a test says."""

    def __init__(self) -> None:
        self.roles = {"a": "edge", "c0": "client"}
        self.statuses: dict[str, int | None] = {"a": None, "c0": None}
        self.did: list[tuple[str, object]] = []

    def signal(self, name: str, number: int) -> None:
        self.did.append((name, signal.Signals(number).name))

    def start(self, name: str) -> None:
        self.did.append((name, "start"))
        self.statuses[name] = None

    def status(self, name: str) -> int | None:
        return self.statuses[name]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(chaos.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("kind", "number", "status", "problems"),
    [
        ("kill", "SIGKILL", -9, []),
        ("stop", "SIGTERM", 130, []),
        ("stop", "SIGTERM", 1, ["a ended with status 1 after stop"]),
    ],
)
def test_a_node_comes_back_and_how_it_ended_is_judged(
    clock: list[float], kind: str, number: str, status: int, problems: list[str]
) -> None:
    nodes = Pretended()
    harmed = Chaos(nodes, First(), 10.0, coming=[kind])  # type: ignore[arg-type]
    harmed.harm()
    harmed.tick()
    assert nodes.did == [("a", number)]
    nodes.statuses["a"] = status
    harmed.tick()
    clock[0] += chaos.RESTART
    harmed.tick()
    assert nodes.did[1:] == [("a", "start")]
    assert harmed.violations == problems
    assert not harmed.away


def test_a_frozen_node_goes_on_and_one_that_ends_by_itself_is_told(clock: list[float]) -> None:
    nodes = Pretended()
    harmed = Chaos(nodes, First(), 10.0, coming=["freeze"])  # type: ignore[arg-type]
    harmed.harm()
    clock[0] += chaos.FROZEN[1]
    harmed.tick()
    assert nodes.did == [("a", "SIGSTOP"), ("a", "SIGCONT")]
    nodes.statuses["c0"] = 1
    harmed.tick()
    assert harmed.violations == ["c0 ended by itself with status 1"]
