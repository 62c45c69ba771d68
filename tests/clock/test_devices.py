"""Devices that differ, and that come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from algorithms import algorithm_of, clients_of
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sdfeel import InputError, Network, Schedule, load_profile
from sdfeel.cli import app
from sdfeel.clock import Devices, Diurnal, Exponential, Lognormal

PAPER = load_profile("paper")
HEAD = """
flops_per_step = 1e6
[rates]
cpu = 1e9
client_server = 1e6
server_server = 2e6
server_cloud = 3e6
client_cloud = 4e6
"""


def profile(tmp_path: Path, text: str, trace: str | None = None):
    (tmp_path / "own.toml").write_text(HEAD + text)
    if trace is not None:
        (tmp_path / "trace.csv").write_text(trace)
    return load_profile(str(tmp_path / "own.toml"))


def test_speeds_and_links_are_parts_of_the_rates(tmp_path: Path) -> None:
    own = profile(tmp_path, "[devices]\nspeed = [1.0, 0.5]\nlink = 0.25\n")
    times, plain = own.latencies(1000, 2, 2), profile(tmp_path, "").latencies(1000, 2, 2)
    np.testing.assert_allclose(times.t_cmp, plain.t_cmp * [1, 2])
    np.testing.assert_allclose(times.t_ct_sr, 4 * plain.t_ct_sr)
    np.testing.assert_allclose(times.t_ct_cd, 4 * plain.t_ct_cd)
    assert times.t_sr_sr == plain.t_sr_sr


def test_what_is_drawn_is_a_function_of_seed_and_client() -> None:
    devices = load_profile("paper-h10").devices
    one, more, other = devices.draw(20, 3), devices.draw(50, 3), devices.draw(20, 4)
    np.testing.assert_array_equal(one.speed, more.speed[:20])
    assert not np.array_equal(one.speed, other.speed)


def test_laws_have_the_spread_that_they_say() -> None:
    """log-uniform: log speed is uniform; lognormal: its deviation is `spread`, its median 1."""
    uniform = np.log10(load_profile("paper-h10").devices.draw(20_000, 0).speed)
    assert -1 <= uniform.min() < uniform.max() <= 0
    assert uniform.mean() == pytest.approx(-0.5, abs=0.01)
    normal = np.log(Devices(Lognormal(spread=0.5)).draw(20_000, 0).speed)
    assert normal.std() == pytest.approx(0.5, abs=0.02)
    assert np.median(normal) == pytest.approx(0, abs=0.02)


def test_classes_come_in_just_their_shares(tmp_path: Path) -> None:
    text = (
        "[devices]\nclasses = [{name = 'phone', share = 0.7, speed = 0.2}, "
        "{name = 'laptop', share = 0.3, link = 2.0}]\n"
    )
    drawn = profile(tmp_path, text).devices.draw(10, 0)
    assert sorted(drawn.names) == ["laptop"] * 3 + ["phone"] * 7
    phones = np.array(drawn.names) == "phone"
    assert (drawn.speed[phones] == 0.2).all()
    assert (drawn.link[~phones] == 2.0).all()
    assert list(drawn.names) != sorted(drawn.names, reverse=True)  # drawn, not in order


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[devices]\nspeed = 0\n", "devices.speed"),
        ("[devices]\nspeed = [1.0, 0.0]\n", r"devices.speed\[1\]"),
        ("[devices]\nspeed = [1.0, -1.0]\n", r"devices.speed\[1\]"),
        ("[devices]\nspeed = {law = 'lognormal'}\n", "devices.speed.spread"),
        ("[devices]\nspeed = {law = 'normal', spread = 1}\n", "devices.speed.law"),
        ("[devices]\nspeed = {law = 'log-uniform', least = 0, most = 1}\n", "devices.speed.least"),
        ("[devices]\nspeed = {law = 'log-uniform', least = 2, most = 1}\n", "devices.speed.least"),
        ("[devices]\nspeeds = 1\n", "devices.speeds"),
        ("[devices]\nclasses = [{name = 'a', share = 0.5}]\n", "devices.classes"),
        ("[devices]\nspeed = 0.5\nclasses = [{share = 1.0}]\n", "devices.speed"),
        ("[availability]\nlaw = 'lunar'\n", "availability.law"),
        ("[availability]\nlaw = 'exponential'\non = 1\n", "availability.off"),
        ("[availability]\nlaw = 'exponential'\non = 1\noff = 0\n", "availability.off"),
        ("[availability]\nlaw = 'diurnal'\nperiod = 10\nshare = 1.5\n", "availability.share"),
        ("[availability]\ntrace = 'absent.csv'\n", "availability.trace"),
        ("[availability]\ntrace = 'a.csv'\nlaw = 'diurnal'\n", "availability.law"),
    ],
)
def test_a_bad_table_names_the_key(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InputError, match=field):
        profile(tmp_path, text)


@pytest.mark.parametrize(
    ("trace", "says"),
    [
        ("client,from,to\n0,0,5\n0,4,9\n1,0,9\n", "overlaps with 0,0,5"),
        ("client,from,to\n0,0,5\n", "have no line"),
        ("client,from,to\n0,0,5\n1,0,5\n2,0,5\n", "no such client"),
        ("client,from,to\n0,0,5\n-1,0,5\n", "no such client"),
        ("client,from,to\n0,5,5\n1,0,5\n", "to a later second"),
        ("client,from,to\n0,0,inf\n1,0,5\n", "to a later second"),
        ("client,from,to\n0,nan,2\n1,0,5\n", "to a later second"),
        ("client,from,to\n0,0\n", "line 2: three numbers"),
        ("client,from,to\nzero,0,1\n", "line 2: three numbers"),
        ("client,from,to\n", "no device is ever on"),
        ("0,0,5\n", "its first line"),
    ],
)
def test_a_bad_trace_is_named_before_training(tmp_path: Path, trace: str, says: str) -> None:
    def begin() -> None:
        own = profile(tmp_path, "[availability]\ntrace = 'trace.csv'\n", trace)
        algorithm_of(Network.ring(2, 1), own)

    with pytest.raises(InputError, match=says):
        begin()


def test_a_trace_says_who_is_there_and_begins_anew(tmp_path: Path) -> None:
    trace = "client,from,to\n0,0,2\n0,6,10\n1,0,4\n1,4,10\n2,3,5\n"
    own = profile(tmp_path, "[availability]\ntrace = 'trace.csv'\n", trace)
    presence = own.availability.draw(3, 0)
    assert presence.off(0, 1.0) == 2
    assert presence.off(0, 2.0) == -np.inf
    assert presence.off(0, 7.0) == 12  # on over the end of the trace
    assert presence.off(0, 11.0) == 12
    assert presence.off(1, 3.0) == np.inf  # spans that touch are one
    assert presence.off(2, 14.0) == 15
    assert [presence.share(c, 20.0) for c in range(3)] == pytest.approx([0.6, 1.0, 0.2])


@given(st.integers(0, 2**64 - 1), st.lists(st.floats(0, 1e4), min_size=1, max_size=20))
def test_drawn_spans_do_not_depend_on_who_asked_before(seed: int, times: list[float]) -> None:
    """Or a resumed run would see other devices than the one that it goes on with."""
    law = Exponential(on=30.0, off=10.0)
    asked, fresh = law.draw(2, seed), law.draw(2, seed)
    for at in times:
        asked.off(1, at)
    assert asked.off(1, times[-1]) == fresh.off(1, times[-1])


def test_drawn_devices_are_on_for_the_share_that_they_should() -> None:
    for law, share in (
        (Exponential(on=30.0, off=10.0), 0.75),
        (Diurnal(period=100.0, share=0.3), 0.3),
    ):
        presence = law.draw(50, 0)
        mean = np.mean([presence.share(client, 4000.0) for client in range(50)])
        assert mean == pytest.approx(share, abs=0.02)


def test_synchronous_periods_go_on_without_who_is_off(tmp_path: Path) -> None:
    """A device that goes off before its model is uploaded does not count either."""
    trace = "client,from,to\n0,0,100\n1,50,100\n2,0,0.001\n2,50,100\n3,0,100\n"
    own = profile(tmp_path, "[availability]\ntrace = 'trace.csv'\n", trace)
    found = algorithm_of(Network.ring(2, 2), own, 10, schedule=Schedule(2, 1, 1))
    at = np.zeros(2)
    assert found.present(0, 2, at).tolist() == [True, False, False, True]
    assert found.present(0, 2, at + 60).all()
    assert clients_of(next(found.events())) == [0, 3]


def test_the_devices_of_a_profile_as_a_table_and_as_json() -> None:
    shown = CliRunner().invoke(app, ["devices", "paper-h10", "--clients", "5", "--json"])
    found = json.loads(shown.stdout)
    drawn = load_profile("paper-h10").devices.draw(5, 0)
    assert [row["speed"] for row in found["devices"]] == drawn.speed.tolist()
    assert found["fastest_to_slowest"] == drawn.speed.max() / drawn.speed.min()
    assert "client" in CliRunner().invoke(app, ["devices", "show", "paper"]).stdout


def test_devices_may_be_made_in_python() -> None:
    own = replace(PAPER, devices=Devices(speed=[1.0, 0.1]))
    times = own.latencies(10, 2, 1).t_cmp
    assert times[1] / times[0] == pytest.approx(10)
