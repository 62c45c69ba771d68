"""The audit that other tests rely on sees what is wrong, and excuses only what was made good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import audit, content

from sdfeel.deploy.config import parse_deployment
from sdfeel.deploy.topology import Topology

TOPOLOGY = Topology(parse_deployment(content((1, 1)), Path()))
SHARE = TOPOLOGY.at(0).share("a") / TOPOLOGY.at(0).share("b")


def exchange(node: str, used: str, moved: float, period: int = 5) -> dict[str, Any]:
    about = {"event": "exchange", "period": period, "exchange": 1, "used": list(used)}
    return {"node": node, "before": 1.0, "after": 1.0 + moved, **about}


def event(node: str, name: str, peer: str, **fields: Any) -> dict[str, Any]:
    return {"node": node, "event": name, "peer": peer, "key": [5, 1], **fields}


def resumed(node: str, period: int) -> dict[str, Any]:
    return {"node": node, "event": "resumed", "period": period}


LOST = {"node": "b", "event": "log-lost", "count": 1}
BOTH = [exchange("a", "b", 0.1), exchange("b", "a", -0.1 * SHARE)]
ALONE = [exchange("a", "b", 0.1), exchange("b", "", 0.0)]
CASES: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "both": (BOTH, False),
    "the mean moves": ([exchange("a", "b", 0.1), exchange("b", "a", 0.1)], True),
    "one alone": (ALONE, True),
    "taken back": ([*ALONE, event("a", "taken-back", "b")], False),
    "added later": ([*ALONE, event("b", "resolved", "a", used=True)], False),
    "the wrong end takes it back": ([*ALONE, event("b", "taken-back", "a")], True),
    "resolved otherwise": ([*ALONE, event("b", "resolved", "a", used=False)], True),
    "taken back by one of two": ([*BOTH, event("a", "taken-back", "b")], True),
    "died with it": ([*ALONE, resumed("a", 4)], False),
    "resumed behind it": ([*ALONE, resumed("a", 5)], True),
    "a line is missing": ([*BOTH, LOST], True),
    "another one died": ([*ALONE, resumed("b", 4)], True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_the_audit_says(name: str) -> None:
    given, wrong = CASES[name]
    lines = [{"time": time, **line} for time, line in enumerate(given)]
    _, problems = audit(TOPOLOGY, lines, 1e-6, ())
    assert bool(problems) == wrong, problems


def test_twice_is_for_those_who_died_only() -> None:
    lines = [{"time": 0, **line} for line in (*BOTH, BOTH[0])]
    assert audit(TOPOLOGY, lines, 1e-6, ())[1]
    assert not audit(TOPOLOGY, lines, 1e-6, ("a",))[1]
