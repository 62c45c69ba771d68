"""Latency profiles: data, not code. t_cmp = N_MAC / C_CPU and t_link = bits / rate.

A profile is a TOML file: those of this folder by name, any other by its path. Every rate may be
one number for all, or a list with one for each client (cpu, client_server, client_cloud,
server_client, cloud_client) or each server (server_cloud). Sending models down to clients
(server_client, cloud_client) takes no time where no rate is given, as in the paper. `[links]` gives
single server-server links a rate of their own: `"0-1" = 10e6`. Every message takes
`seconds_per_message` more, whatever its length. `[devices]` makes clients differ by parts of these
rates, and `[availability]` says when they are there: see `devices.py` and `availability.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sdfeel.clock.availability import Availability
from sdfeel.clock.devices import Devices
from sdfeel.errors import InputError, closest
from sdfeel.toml import read_toml

__all__ = ["Latencies", "LatencyProfile", "load_profile", "profile_names", "profile_of"]

Rate = float | tuple[float, ...]
CloudUplink = Literal["direct", "shared-backhaul"]
RATES = ("cpu", "client_server", "server_server", "server_cloud", "client_cloud")
DOWN = ("server_client", "cloud_client")  # free where they are not given


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


@dataclass(frozen=True)
class LatencyProfile:
    """Rates and sizes from which latencies follow; `flops_per_step` None means "to be counted"."""

    name: str
    flops_per_step: float | None
    cpu: Rate
    client_server: Rate
    server_server: float
    server_cloud: Rate
    client_cloud: Rate
    server_client: Rate | None = None
    cloud_client: Rate | None = None
    seconds_per_message: float = 0.0
    bits_per_parameter: float = 32.0
    cloud_uplink: CloudUplink = "direct"
    summary: str = ""
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)
    devices: Devices | None = None  # None: all alike
    availability: Availability | None = None  # None: always there

    def __post_init__(self) -> None:
        for name in (*RATES, *DOWN):
            value = getattr(self, name)
            if value is None and name in DOWN:
                continue
            if isinstance(value, list | np.ndarray):
                value = tuple(float(rate) for rate in value)
                object.__setattr__(self, name, value)
            if name == "server_server" and isinstance(value, tuple):
                raise InputError("rates.server_server", value, "one number; see [links] for more")
            for rate in value if isinstance(value, tuple) else (value,):
                _positive(f"rates.{name}", rate)
        for link, rate in self.links.items():
            _positive(f"links.{link[0]}-{link[1]}", rate)
        _positive("bits_per_parameter", self.bits_per_parameter)
        if not 0 <= self.seconds_per_message < float("inf"):
            raise InputError("seconds_per_message", self.seconds_per_message, "0 or more")
        if self.flops_per_step is not None:
            _positive("flops_per_step", self.flops_per_step)

    def with_flops(self, flops: float) -> LatencyProfile:
        """The profile with its FLOPs per local iteration counted, if it asked for that."""
        return self if self.flops_per_step is not None else replace(self, flops_per_step=flops)

    def bits(
        self, parameters: int, messages: Mapping[str, float] | None = None
    ) -> dict[str, float]:
        """Length of a message on each way, and of a whole model; as `latencies` has it."""
        whole = self.bits_per_parameter * parameters
        found = {way: bits * self.bits_per_parameter / 32 for way, bits in (messages or {}).items()}
        return dict.fromkeys(("up", "down", "between", "whole"), whole) | found

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
        for link in self.links:
            if not all(0 <= server < servers for server in link):
                raise InputError("links", f"{link[0]}-{link[1]}", f"servers are 0 to {servers - 1}")
        bits = self.bits(parameters, messages)
        between = bits["between"]
        own = (self.devices or Devices()).draw(clients, seed)

        def down(name: str) -> Downlink | None:
            if getattr(self, name) is None:
                return None
            rates = self._each(name, clients) * own.link
            return Downlink(bits["down"] / rates, bits["whole"] / rates)

        return Latencies(
            t_cmp=self.flops_per_step / (self._each("cpu", clients) * own.speed),
            t_ct_sr=bits["up"] / (self._each("client_server", clients) * own.link),
            t_ct_cd=bits["up"] / (self._each("client_cloud", clients) * own.link),
            t_sr_cd=between / self._each("server_cloud", servers),
            t_sr_sr=between / self.server_server,
            links={(min(link), max(link)): between / rate for link, rate in self.links.items()},
            from_server=down("server_client"),
            from_cloud=down("cloud_client"),
            per_message=self.seconds_per_message,
        )

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
    """A profile by name, or by the path of a TOML file."""
    if name in profile_names():
        text = (resources.files("sdfeel.clock") / "profiles" / f"{name}.toml").read_text("utf-8")
        table, folder = read_toml(text, "profile"), Path()
    elif name.endswith(".toml"):
        table, folder = read_toml(Path(name), "profile"), Path(name).parent
    else:
        raise InputError(
            "profile", name, f"{closest(name, profile_names())}; or the path of a .toml file"
        )
    return profile_of(table, Path(name).stem, folder)


def profile_of(
    given: Mapping[str, Any], name: str = "own", folder: Path | None = None
) -> LatencyProfile:
    """A profile from a table with the keys of a file; a trace that it names lies in `folder`."""
    table: dict[str, Any] = _plain(given)
    known = {f.name for f in fields(LatencyProfile)} - {*RATES, *DOWN, "name"}
    _refuse_unknown(name, table, known | {"rates"})
    rates = _table(f"{name}: rates", table.pop("rates", {}))
    _refuse_unknown(f"{name}.rates", rates, {*RATES, *DOWN})
    missing = [rate for rate in RATES if rate not in rates]
    if missing or "flops_per_step" not in table:
        lacking = missing or ["flops_per_step"]
        raise InputError("profile", name, f"{', '.join(lacking)} missing; see profile `paper`")
    flops = table.pop("flops_per_step")
    links = {}
    for key, rate in _table(f"{name}: links", table.pop("links", {})).items():
        a, b = _link(key)
        links[a, b] = _number(f"links.{a}-{b}", rate)
    if "devices" in table:
        table["devices"] = Devices.of_table(_table(f"{name}: devices", table["devices"]))
    if "availability" in table:
        own = _table(f"{name}: availability", table["availability"])
        table["availability"] = Availability.of_table(own, folder or Path())
    for key in ("bits_per_parameter", "seconds_per_message"):
        if key in table:
            table[key] = _number(key, table[key])
    if table.get("cloud_uplink", "direct") not in ("direct", "shared-backhaul"):
        raise InputError("cloud_uplink", table["cloud_uplink"], "direct or shared-backhaul")
    return LatencyProfile(
        name=name,
        flops_per_step=None if flops == "counted" else _number("flops_per_step", flops),
        links=links,
        **{rate: _rate(f"rates.{rate}", rates[rate]) for rate in (*RATES, *DOWN) if rate in rates},
        **table,
    )


def _plain(value: Any) -> Any:
    """As TOML would have it: a Python table may hold tuples and arrays."""
    if isinstance(value, Mapping):
        return {str(key): _plain(own) for key, own in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(own) for own in value] if isinstance(value, list | tuple) else value


def _table(where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, value, "a table; see profile `paper`")
    return value


def _refuse_unknown(where: str, table: dict[str, Any], known: set[str]) -> None:
    for key, value in table.items():
        if key not in known:
            raise InputError(f"{where}: {key}", value, f"unknown key; {closest(key, known)}")


def _link(key: str) -> tuple[int, int]:
    ends = key.split("-")
    if len(ends) != 2 or not all(end.isdecimal() for end in ends) or ends[0] == ends[1]:
        raise InputError("links", key, 'two servers, such as "0-1"')
    return min(int(ends[0]), int(ends[1])), max(int(ends[0]), int(ends[1]))


def _rate(field_name: str, value: object) -> Any:
    if isinstance(value, list):
        return tuple(_number(field_name, entry) for entry in value)
    return _number(field_name, value)


def _number(field_name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(field_name, value, "a number")
    return float(value)


def _positive(field_name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise InputError(field_name, value, "a finite number above 0")
