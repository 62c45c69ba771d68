"""Latency profiles: data, not code. t_cmp = N_MAC / C_CPU and t_link = bits / rate.

A profile is a TOML file: those of this folder by name, any other by its path. Every rate may be
one number for all, or a list with one for each client (cpu, client_server, client_cloud,
server_client, cloud_client) or each server (server_cloud). Sending models down to clients
(server_client, cloud_client) takes no time where no rate is given, as in the paper. `[links]` gives
single server-server links a rate of their own: `"0-1" = 10e6`. Every message takes
`seconds_per_message` more, whatever its length; over a server-server link also the seconds of
`[latency]`: `"0-1" = 0.02`. An `underlay` says where servers are, and so how far every link is: see
`underlays.py`. `[devices]` makes clients differ by parts of these rates, and `[availability]` says
when they are there: see `devices.py` and `availability.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from sdfeel.clock.availability import Availability, availability_of, table_of
from sdfeel.clock.devices import Devices
from sdfeel.clock.underlays import load_underlay
from sdfeel.errors import InputError, closest, located
from sdfeel.toml import read_toml
from sdfeel.validation import (
    NotNegative,
    OneOrEach,
    Positive,
    checked,
    number_above_0,
    number_from_0,
)

RATES = ("cpu", "client_server", "server_server", "server_cloud", "client_cloud")
DOWN = ("server_client", "cloud_client")  # free where they are not given
Link = tuple[int, int]


@dataclass(frozen=True)
class Downlink:
    """Seconds down to each client: of a message, and of a whole model at 32 bits a number."""

    message: NDArray[np.float64]
    whole: NDArray[np.float64]


@dataclass(frozen=True)
class Latencies:
    """Seconds that each event takes on a given network with a given model."""

    t_cmp: NDArray[np.float64]  # one local update, per client
    t_ct_sr: NDArray[np.float64]  # upload to the edge server, per client
    t_ct_cd: NDArray[np.float64]  # upload to the cloud, per client
    t_sr_cd: NDArray[np.float64]  # edge server to cloud, per server
    t_sr_sr: float  # one model between neighbouring servers
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)  # links that differ
    from_server: Downlink | None = None  # None: it takes no time
    from_cloud: Downlink | None = None
    per_message: float = 0.0  # seconds on top of each of these

    def link(self, a: int, b: int) -> float:
        """Seconds for one model over the link between two servers."""
        return self.links.get((min(a, b), max(a, b)), self.t_sr_sr)


def _flops(value: Any) -> float | None:
    if value is None or value == "counted":
        return None
    try:
        return number_above_0(value)
    except InputError:
        raise InputError("", value, 'a finite number above 0, or "counted"') from None


def _between_servers(value: Any) -> float:
    if isinstance(value, list | tuple):
        raise InputError("", value, "one number; see [links] for more")
    return number_above_0(value)


def _by_link(name: str, number: Callable[[Any], float]) -> PlainValidator:
    """Numbers by link: `"0-1"` as files have it, or a pair of servers."""

    def check(value: Any) -> dict[Link, float]:
        if not isinstance(value, Mapping):
            raise InputError("", value, "a table; see profile `paper`")
        links = {}
        for key, given in value.items():
            ends = key.split("-") if isinstance(key, str) else [str(end) for end in key]
            if len(ends) != 2 or not all(end.isdecimal() for end in ends) or ends[0] == ends[1]:
                raise InputError(name, key, 'two servers, such as "0-1"')
            a, b = sorted(int(end) for end in ends)
            with located(f"{name}.{a}-{b}"):
                links[a, b] = number(given)
        return links

    return PlainValidator(check)


def _underlay(value: Any) -> str | None:
    if value is None:
        return None
    load_underlay(str(value))
    return str(value)


def _devices(value: Any) -> Devices | None:
    if value is None or isinstance(value, Devices):
        return value
    if not isinstance(value, Mapping):
        raise InputError("devices", value, "a table with speed and link, or classes")
    return Devices(**value)


@checked()
class LatencyProfile:
    """Rates and sizes from which latencies follow; `flops_per_step` None means "to be counted".

    >>> profile = sdfeel.LatencyProfile(
    ...     "lab", flops_per_step=1e6, cpu=1e9, client_server=1e6, server_server=1e7,
    ...     server_cloud=1e6, client_cloud=1e6,
    ... )
    >>> profile.bits(1000)["up"]
    32000.0
    """

    name: str
    flops_per_step: Annotated[float | None, PlainValidator(_flops)]
    cpu: OneOrEach
    client_server: OneOrEach
    server_server: Annotated[float, PlainValidator(_between_servers)]
    server_cloud: OneOrEach
    client_cloud: OneOrEach
    server_client: OneOrEach | None = None
    cloud_client: OneOrEach | None = None
    seconds_per_message: NotNegative = 0.0
    bits_per_parameter: Positive = 32.0
    cloud_uplink: Literal["direct", "shared-backhaul"] = "direct"
    summary: str = ""
    links: Annotated[Mapping[Link, float], _by_link("links", number_above_0)] = field(
        default_factory=dict
    )
    latency: Annotated[Mapping[Link, float], _by_link("latency", number_from_0)] = field(
        default_factory=dict
    )
    underlay: Annotated[str | None, PlainValidator(_underlay)] = None  # None: links are alike
    devices: Annotated[Devices | None, PlainValidator(_devices)] = None  # None: all alike
    availability: Annotated[Availability | None, PlainValidator(availability_of)] = None

    def with_flops(self, flops: float) -> LatencyProfile:
        """The profile with its FLOPs per local iteration counted, if it asked for that."""
        return self if self.flops_per_step is not None else replace(self, flops_per_step=flops)

    def bits(
        self, parameters: int, messages: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Length of a message on each way, and of a whole model; as `latencies` has it."""
        whole = self.bits_per_parameter * parameters
        coded = {way: bits * self.bits_per_parameter / 32 for way, bits in (messages or {}).items()}
        return dict.fromkeys(("up", "down", "between", "whole"), whole) | coded

    def latencies(
        self,
        parameters: int,
        clients: int,
        servers: int,
        messages: Mapping[str, float] | None = None,
        seed: int = 0,
    ) -> Latencies:
        """Seconds per event for a model of `parameters` numbers.

        messages  bits by way (up, down, between) where it is not the whole model at 32 a number
        seed      by which devices are drawn
        """
        if self.flops_per_step is None:
            raise InputError(
                "flops_per_step",
                "counted",
                f"profile {self.name} needs the model's FLOPs: with_flops(...)",
            )
        for name in ("links", "latency"):
            for a, b in getattr(self, name):
                if max(a, b) >= servers:
                    raise InputError(name, f"{a}-{b}", f"servers are 0 to {servers - 1}")
        bits = self.bits(parameters, messages)
        between = bits["between"]
        devices = (self.devices or Devices()).draw(clients, seed)

        def down(name: str) -> Downlink | None:
            if getattr(self, name) is None:
                return None
            rates = self._each(name, clients) * devices.link
            return Downlink(bits["down"] / rates, bits["whole"] / rates)

        return Latencies(
            t_cmp=self.flops_per_step / (self._each("cpu", clients) * devices.speed),
            t_ct_sr=bits["up"] / (self._each("client_server", clients) * devices.link),
            t_ct_cd=bits["up"] / (self._each("client_cloud", clients) * devices.link),
            t_sr_cd=between / self._each("server_cloud", servers),
            t_sr_sr=between / self.server_server,
            links=self._seconds_of_links(between, servers),
            from_server=down("server_client"),
            from_cloud=down("cloud_client"),
            per_message=self.seconds_per_message,
        )

    def _seconds_of_links(self, bits: float, servers: int) -> dict[Link, float]:
        """Seconds of a message over each link that is not like the others."""
        latency, lines = dict(self.latency), {}
        if self.underlay is not None:
            underlay = load_underlay(self.underlay)
            if servers > len(underlay.places):
                remedy = f"has {len(underlay.places)} places for {servers} servers"
                raise InputError("underlay", self.underlay, remedy)
            pairs = [(a, b) for b in range(servers) for a in range(b)]
            latency = {pair: float(underlay.latency[pair]) for pair in pairs} | latency
            lines = {pair: int(underlay.lines[pair]) for pair in pairs}
        rates = {pair: self.server_server / lines.get(pair, 1) for pair in latency} | dict(
            self.links
        )
        return {pair: bits / rate + latency.get(pair, 0.0) for pair, rate in rates.items()}

    def _each(self, name: str, count: int) -> NDArray[np.float64]:
        value = getattr(self, name)
        if isinstance(value, tuple) and len(value) != count:
            raise InputError(f"rates.{name}", value, f"one number, or a list of {count}")
        return np.broadcast_to(np.asarray(value, dtype=float), (count,)).copy()


def profile_names() -> list[str]:
    """The profiles that come with sdfeel."""
    folder = resources.files("sdfeel.clock") / "profiles"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir())


def load_profile(name: str) -> LatencyProfile:
    """A profile by name, or by the path of a TOML file.

    >>> sdfeel.load_profile("paper").cpu
    10000000000.0
    """
    if name in profile_names():
        text = (resources.files("sdfeel.clock") / "profiles" / f"{name}.toml").read_text("utf-8")
        return profile_of(read_toml(text, "profile"), name)
    if name.endswith(".toml"):
        return profile_of(read_toml(Path(name), "profile"), Path(name).stem, Path(name).parent)
    remedy = f"{closest(name, profile_names())}; or the path of a .toml file"
    raise InputError("profile", name, remedy)


def profile_of(
    given: Mapping[str, Any], name: str = "own", folder: Path = Path()
) -> LatencyProfile:
    """A profile from a table with the keys of a file; a trace that it names lies in `folder`."""
    table: dict[str, Any] = _plain(given)
    rates = table.pop("rates", {})
    if not isinstance(rates, dict):
        raise InputError(f"{name}: rates", rates, "a table; see profile `paper`")
    for where, keys, known in (
        (f"{name}.rates", rates, (*RATES, *DOWN)),
        (name, table, (*TABLE, "rates")),
    ):
        for key in keys:
            if key not in known:
                remedy = f"unknown key; {closest(key, known)}"
                raise InputError(f"{where}: {key}", keys[key], remedy)
    lacking = [key for key in RATES if key not in rates]
    lacking += [] if "flops_per_step" in table else ["flops_per_step"]
    if lacking:
        raise InputError("profile", name, f"{', '.join(lacking)} missing; see profile `paper`")
    availability = table.get("availability")
    if isinstance(availability, dict) and isinstance(availability.get("trace"), str):
        table["availability"] = availability | {"trace": folder / availability["trace"]}
    if str(table.get("underlay", "")).endswith(".toml"):
        table["underlay"] = str(folder / table["underlay"])
    try:
        return LatencyProfile(name=name, **rates, **table)
    except InputError as problem:
        if problem.field.partition("[")[0] not in rates:
            raise
        raise problem.at("rates.") from None


# The keys of a profile's file beside [rates].
TABLE = [key.name for key in fields(LatencyProfile) if key.name not in ("name", *RATES, *DOWN)]


def profile_table(profile: LatencyProfile) -> dict[str, Any]:
    """Return a profile without its name, as a table that `profile_of` reads back."""
    rates = {rate: getattr(profile, rate) for rate in (*RATES, *DOWN)}
    table: dict[str, Any] = {key: getattr(profile, key) for key in TABLE}
    table["flops_per_step"] = table["flops_per_step"] or "counted"
    table["rates"] = {key: rate for key, rate in _plain(rates).items() if rate is not None}
    for key in ("links", "latency"):
        table[key] = {f"{a}-{b}": value for (a, b), value in getattr(profile, key).items()}
    table["devices"] = profile.devices and profile.devices.table()
    table["availability"] = profile.availability and table_of(profile.availability)
    return {key: value for key, value in table.items() if value not in (None, {})}


def _plain(value: Any) -> Any:
    """Turn tuples and arrays of a Python table into lists, as TOML has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
