from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sdfeel import InputError, LatencyProfile, load_profile
from sdfeel.clock import profile_names

GOOD = """
summary = "ours"
flops_per_step = 1e6
bits_per_parameter = 16
[rates]
cpu = [1e9, 2e9]
client_server = 1e6
server_server = 2e6
server_cloud = 3e6
client_cloud = 4e6
[links]
"1-0" = 5e5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ours.toml"
    path.write_text(GOOD)
    return path


def test_profiles_that_come_along_all_load() -> None:
    assert {"paper", "shared-backhaul", "counted"} <= set(profile_names())
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        assert profile.summary


def test_a_profile_of_ones_own(file: Path) -> None:
    profile = load_profile(str(file))
    times = profile.latencies(parameters=1000, clients=2, servers=2)
    np.testing.assert_allclose(times.t_cmp, [1e-3, 5e-4])
    np.testing.assert_allclose(times.t_ct_sr, [0.016, 0.016])
    assert times.link(0, 1) == times.link(1, 0) == pytest.approx(16_000 / 5e5)
    assert times.t_sr_sr == pytest.approx(0.008)


def test_counted_flops_are_asked_for() -> None:
    profile = load_profile("counted")
    with pytest.raises(InputError, match="with_flops"):
        profile.latencies(10, 1, 1)
    assert profile.with_flops(2e9).latencies(10, 1, 1).t_cmp == pytest.approx(0.2)
    fixed = load_profile("paper")
    assert fixed.with_flops(1.0) is fixed


@pytest.mark.parametrize(
    ("old", "new", "field", "says"),
    [
        ("cpu = [1e9, 2e9]", "cpu = 0", "rates.cpu", "above 0"),
        ("cpu = [1e9, 2e9]", "cpu = [1e9, 0]", "rates.cpu[1]", "above 0"),
        ("cpu = [1e9, 2e9]", "cpu = 'fast'", "rates.cpu", "finite number"),
        ("cpu = [1e9, 2e9]", "cpu = true", "rates.cpu", "finite number"),
        ("cpu = [1e9, 2e9]", "cpu = nan", "rates.cpu", "finite"),
        ("server_server = 2e6", "server_server = -1", "rates.server_server", "above 0"),
        ("server_server = 2e6", "server_server = [1e6, 2e6]", "rates.server_server", "[links]"),
        ("cpu =", "cpus =", "ours.rates: cpus", "did you mean 'cpu'?"),
        ("bits_per_parameter", "bits_per_paramter", "ours: bits_per_paramter", "bits_per_param"),
        ("client_cloud = 4e6", "", "profile", "client_cloud missing"),
        ("flops_per_step = 1e6", "", "profile", "flops_per_step missing"),
        ("flops_per_step = 1e6", "flops_per_step = 'many'", "flops_per_step", "counted"),
        ("flops_per_step = 1e6", "flops_per_step = 0", "flops_per_step", "above 0"),
        (
            "bits_per_parameter = 16",
            "bits_per_parameter = 'x'",
            "bits_per_parameter",
            "finite number",
        ),
        ("[rates]", "[rates]\nserver_client = 0", "rates.server_client", "above 0"),
        ("[rates]", "seconds_per_message = -1\n[rates]", "seconds_per_message", "not below 0"),
        ("[rates]", "seconds_per_message = 'x'\n[rates]", "seconds_per_message", "finite number"),
        ('"1-0" = 5e5', '"1-0" = 0', "links.0-1", "above 0"),
        ('"1-0" = 5e5', '"1-0" = "slow"', "links.0-1", "finite number"),
        ('"1-0" = 5e5', '"1-1" = 5e5', "links", "two servers"),
        ('"1-0" = 5e5', '"one" = 5e5', "links", "two servers"),
        ("summary", 'cloud_uplink = "pigeon"\nsummary', "cloud_uplink", "direct, shared"),
        ("[rates]", "rates = 5\n[other]", "ours: rates", "a table"),
        ("[rates]", "[other]\nx = 1\n[rates]", "ours: other", "unknown key"),
        ("summary", "summary = = =\nsummary", "profile", "not TOML"),
    ],
)
def test_a_bad_profile_names_the_key(file: Path, old: str, new: str, field: str, says: str) -> None:
    file.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_profile(str(file))
    assert error.value.field == field
    assert says in str(error.value)


@pytest.mark.parametrize(("key", "field"), [("rates", "odd: rates"), ("links", "links")])
def test_a_number_where_a_table_belongs(tmp_path: Path, key: str, field: str) -> None:
    path = tmp_path / "odd.toml"
    rates = "[rates]\ncpu = 1\nclient_server = 1\nserver_server = 1\nserver_cloud = 1\n"
    text = f"{key} = 5\nflops_per_step = 1\n"
    path.write_text(text if key == "rates" else f"{text}{rates}client_cloud = 1\n")
    with pytest.raises(InputError, match="a table") as error:
        load_profile(str(path))
    assert error.value.field == field


@pytest.mark.parametrize(
    ("clients", "servers", "field", "says"),
    [(3, 2, "rates.cpu", "list of 3"), (2, 1, "links", "servers are 0 to 0")],
)
def test_a_profile_that_does_not_fit_the_network(
    file: Path, clients: int, servers: int, field: str, says: str
) -> None:
    with pytest.raises(InputError) as error:
        load_profile(str(file)).latencies(10, clients, servers)
    assert error.value.field == field
    assert says in str(error.value)


def test_models_down_take_time_where_a_rate_is_given(file: Path) -> None:
    times = load_profile(str(file)).latencies(1000, 2, 2, {"down": 8000.0})
    assert times.from_server is None
    assert times.from_cloud is None
    file.write_text(GOOD.replace("[rates]", "[rates]\nserver_client = [1e6, 2e6]", 1))
    times = load_profile(str(file)).latencies(1000, 2, 2, {"down": 8000.0})
    assert times.from_server is not None
    np.testing.assert_allclose(times.from_server.whole, [0.016, 0.008])  # at 16 bits a number
    np.testing.assert_allclose(times.from_server.message, [0.004, 0.002])


def test_a_profile_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'paper'"):
        load_profile("papper")
    with pytest.raises(InputError, match="there is no such file"):
        load_profile(str(tmp_path / "absent.toml"))


def test_rates_of_a_profile_made_in_python_may_be_any_sequence() -> None:
    paper = load_profile("paper")
    profile: LatencyProfile = replace(paper, cpu=[1e9, 2e9], links={(1, 0): 1e6})  # type: ignore[arg-type]
    times = profile.latencies(1, 2, 2)
    np.testing.assert_allclose(times.t_cmp, [0.1384, 0.0692])
    assert times.link(0, 1) == 32 / 1e6
    with pytest.raises(InputError, match=r"cpu\[1\] = 0"):
        replace(paper, cpu=(1e9, 0))
