"""What the page computes is what the command line prints and what the run's own clock showed."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from worlds import Problem

import sdfeel
from sdfeel.algorithm.timeline import timeline as spans_of
from sdfeel.cli import app
from sdfeel.page.lanes import PARTS
from sdfeel.page.runs import Runs
from sdfeel.page.timeline import Timeline, algorithm_of
from sdfeel.page.views import Views
from sdfeel.page.what_if import choices, what_if
from sdfeel.records.reading import FollowedRun

COLLECTS = ("compute", "upload", "waiting")


def printed(line: str, folder: Path) -> dict:
    words = line.replace("what-if.toml", str(folder / "what-if.toml")).split()
    done = CliRunner().invoke(app, [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


ASKED: list[dict[str, str]] = [
    {},
    {"tau1": "7", "tau2": "3", "averager": "chebyshev", "graph": "torus", "servers": "12"},
    {"alpha": "9", "between": "int8", "graph": "full", "averager": "metropolis"},
    {"scheme": "hierfavg", "profile": "paper-downlink", "up": "int8", "down": "int4"},
    {"averager": "all-reduce", "graph": "star", "clients": "2"},
    {"scheme": "fedavg", "profile": "shared-backhaul"},
    {"scheme": "fedavg", "client_cloud": "1e6", "cpu": "5e9"},
    {"scheme": "hierfavg", "server_cloud": "2e6"},
    {"client_server": "1000000", "server_server": "2e7", "parameters": "1000"},
    {"spread": "10", "servers": "4", "clients": "3"},
]


def test_everything_that_can_be_set_is_compared() -> None:
    found = choices()
    can = {*found["numbers"], *found["words"], *found["rates"], "spread"}
    assert {name for asked in ASKED for name in asked} == can


@pytest.mark.parametrize("asked", ASKED)
def test_what_if_is_what_the_commands_print(asked: dict[str, str], tmp_path: Path) -> None:
    found = what_if(asked)
    clock, topology = found["commands"]
    if found["profile"] is not None:
        (tmp_path / "what-if.toml").write_text(found["profile"])
    said = printed(clock, tmp_path)
    for name in ("seconds_per_round", "compute", "upload", "exchange", "download"):
        assert found[name] == said[name], name
    assert found["waiting"] == said["wait"]
    assert sum(found[part] for part in PARTS) == pytest.approx(found["seconds_per_round"])
    assert found["bytes_per_round"] == said["bytes_per_round"]
    said = printed(topology, tmp_path)
    for name in ("zeta", "contraction"):
        assert found[name] == pytest.approx(said[name], rel=1e-9, abs=1e-12), name


def test_what_is_set_counts() -> None:
    """Each on its own changes a number: nothing that can be moved is without effect."""
    plain = what_if({})
    moved = {
        "tau1": "3", "tau2": "2", "alpha": "2", "servers": "8", "clients": "3", "up": "int8",
        "down": "int8", "between": "int8", "parameters": "1000", "averager": "chebyshev",
        "graph": "star", "scheme": "fedavg", "profile": "paper-downlink", "cpu": "1e9",
        "client_server": "1e6", "server_server": "1e6", "spread": "4",
    }  # fmt: skip
    told = ("seconds_per_round", "bytes_per_round", "zeta", "contraction")
    for name, value in moved.items():
        found = what_if({name: value})
        assert [found[key] for key in told] != [plain[key] for key in told], name


def test_what_has_no_rounds_or_devices_of_its_own_is_not_offered() -> None:
    words = choices()["words"]
    assert not {"fedasync", "fedbuff"} & set(words["scheme"])
    assert "paper-h10" not in words["profile"]
    for asked in ({"scheme": "fedbuff"}, {"profile": "paper-h10"}):
        with pytest.raises(sdfeel.InputError, match=rf"^{next(iter(asked))} = "):
            what_if(asked)


def train(small: Problem, out: Path, **options) -> FollowedRun:
    sdfeel.train(
        small.model, small.datasets, network=small.network, engine="vectorised", lr=0.1, out=out,
        steps=23, **{"averager": "metropolis", "evaluate_every": 6, **options},
    )  # fmt: skip
    run = FollowedRun(out)
    run.look()
    return run


def played(timeline: Timeline, run: FollowedRun) -> None:
    """From row to row, and at each it is where the run was."""
    for number in range(run.metrics.rows):
        row = run.metrics.row(number)
        assert timeline.advance(row)
        assert not timeline.is_past(row)
        if number:
            assert timeline.event.k == row["iteration"]
            assert timeline.event.ends == row["seconds"]
        else:
            assert timeline.event is None


def lanes_of(timeline: Timeline) -> list:
    """The boxes of each lane, which follow one another from the beginning: nothing is lost."""
    found = [[box for box in timeline.boxes if box.lane == lane] for lane in range(timeline.lanes)]
    for lane in found:
        assert lane[0].start == 0
        for box, following in pairwise(lane):
            assert box.end == pytest.approx(following.start, rel=1e-9)
    assert min(seconds for box in timeline.boxes for seconds in box.parts.values()) >= 0
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheme": "hierfavg", "participation": 0.5, "seed": 3},
        {"averager": "all-reduce", "codecs": {"up": "int8"}, "profile": "paper-downlink"},
        {"scheme": "fedavg", "profile": "shared-backhaul"},
        {"profile": "paper-h10", "seed": 5},
    ],
)
def test_the_timeline_ends_where_the_clock_of_the_run_was(small, tmp_path: Path, options) -> None:
    schedule = sdfeel.Schedule(tau1=3, tau2=2, alpha=2)
    run = train(small, tmp_path / "run", schedule=schedule, **options)
    timeline = Timeline(algorithm_of(run.network, run.config), steps=23)
    assert timeline.has_rounds
    played(timeline, run)
    assert timeline.event.k == 23
    assert timeline.event.is_short, "the last period has two iterations instead of three"
    ends = [lane[-1].end for lane in lanes_of(timeline)]
    assert max(ends) == pytest.approx(timeline.event.ends, rel=1e-9)
    # It is whole at the end of a run, and the page shows that too.
    views = Views(Runs([tmp_path]))
    views.table["runs"]({})
    shown = views.table["timeline"]({"run": "run", "rounds": "4"})
    assert (shown["iteration"], shown["seconds"]) == (23, timeline.event.ends)
    assert shown["boxes"] == [box.as_dict() for box in timeline.boxes]


def test_devices_that_are_off_are_off_on_the_page_too(small, tmp_path: Path) -> None:
    profile = tmp_path / "own.toml"
    unequal = Path(sdfeel.__file__).parent / "clock/profiles/paper-h10.toml"
    law = '[availability]\nlaw = "exponential"\non = 0.4\noff = 0.4\n'
    profile.write_text(f"{unequal.read_text()}\n{law}")
    options = {"scheme": "fedavg", "schedule": sdfeel.Schedule(1, 1, 1), "evaluate_every": 1}
    run = train(small, tmp_path / "run", profile=str(profile), **options)
    played(Timeline(algorithm_of(run.network, run.config)), run)


def next_begins(timeline: Timeline) -> dict[int, float]:
    """When each lane began the period that is not over yet, by the stream alone."""
    begun: dict[int, float] = {}
    for event in timeline.algorithm.events():
        if event.number > timeline.event.number:
            begun = {g.number: at for g, at in zip(event.groups, event.begun, strict=True)} | begun
        if len(begun) == timeline.lanes:
            return begun
    raise AssertionError("a stream does not end")


@pytest.mark.parametrize(
    "options",
    [
        {"pace": "asynchronous", "profile": "paper-h10", "seed": 5},
        {"pace": "asynchronous", "profile": "paper"},  # all are ready together
        {"pace": "asynchronous", "profile": "paper-downlink", "averager": "all-reduce"},
        {"scheme": "fedbuff", "profile": "paper-h10"},
        {"scheme": "fedasync", "profile": "paper-downlink"},
    ],
)
def test_periods_are_those_of_the_run_and_of_the_command(small, tmp_path: Path, options) -> None:
    """Ends where the run was at every row; its boxes are the spans of `sdfeel clock`."""
    schedule = sdfeel.Schedule(tau1=3, tau2=2, alpha=2)
    run = train(small, tmp_path / "run", schedule=schedule, **options)
    timeline = Timeline(algorithm_of(run.network, run.config))
    assert not timeline.has_rounds
    played(timeline, run)
    spans = spans_of(timeline.algorithm, timeline.event.ends)
    begun = next_begins(timeline)
    for lane, own in enumerate(lanes_of(timeline)):
        assert own[-1].end == pytest.approx(begun[lane], rel=1e-9), "nothing is lost"
        is_star = timeline.kind == "client"
        who = f"{timeline.kind} {lane}"
        kinds = {"compute": ("compute",)} if is_star else {"collect": COLLECTS}
        for does, parts in kinds.items():
            wanted = [(s.begin, s.end - s.begin) for s in spans if (s.who, s.does) == (who, does)]
            found = [(box.start, sum(box.parts[part] for part in parts)) for box in own]
            assert np.array(found) == pytest.approx(np.array(wanted[: len(found)]), rel=1e-9)


def test_who_is_fast_has_more_periods(small, tmp_path: Path) -> None:
    run = train(small, tmp_path / "run", pace="asynchronous", profile="paper-h10", seed=5)
    views = Views(Runs([tmp_path]))
    views.table["runs"]({})
    shown = views.table["timeline"]({"run": "run", "rounds": "5"})
    counts = [sum(box["lane"] == lane for box in shown["boxes"]) for lane in range(3)]
    assert shown["names"] == ["server 0", "server 1", "server 2"]
    assert max(counts) > min(counts) > 0
    assert shown["mean_of"] == f"mean of the last {sum(counts)} periods"
    assert 5 <= min(counts) <= 6, "of the slowest as many as asked for"
    assert shown["seconds"] == run.metrics.row(run.metrics.rows - 1)["seconds"]
    assert shown["clock"] is None, "there are no rounds"
    network = views.table["network"]({"run": "run"})
    assert network["averager"] == "metropolis"
    assert "no rounds" in network["problem"]


def test_unequal_servers_wait(small, tmp_path: Path) -> None:
    """Where a link is slow its ends take longer, and who is two links away waits for them."""
    run = train(small, tmp_path / "run", schedule=sdfeel.Schedule(1, 1, 3))
    algorithm = algorithm_of(run.network, run.config)
    algorithm.uplink.latencies.t_cmp[:] = [1, 1, 1, 2, 1, 1]
    timeline = Timeline(algorithm)
    tenth = next(islice(algorithm.events(), 9, None))
    assert timeline.advance({"seconds": tenth.ends})
    assert timeline.event.k == 10
    waited = [sum(box.parts["waiting"] for box in lane) for lane in lanes_of(timeline)]
    assert waited[0] == pytest.approx(0, abs=1e-9), "client 3 is of server 0, the slowest"
    assert min(waited[1:]) > 0.5


def test_the_network_of_a_run_is_the_networks(small, tmp_path: Path) -> None:
    run = train(small, tmp_path / "run")
    views = Views(Runs([tmp_path]))
    views.table["runs"]({})
    found = views.table["network"]({"run": "run"})
    network = small.network.with_samples([len(d) for d in small.datasets])
    assert found["zeta"] == pytest.approx(network.zeta, rel=1e-12)
    assert found["clients"] == [2, 3, 1]
    assert found["shares"] == pytest.approx(network.shares.cluster)
    links = found["links"]
    sent = found["bytes_per_round"]["between"]
    assert found["link_bytes_per_round"] * len(links) == sent
    assert [f"{a}-{b}" for a, b in links] == list(run.trace.columns)[2 : 2 + len(links)]
