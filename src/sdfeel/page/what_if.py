"""What if: zeta, contraction, seconds and bytes of a round for settings that nobody has run yet.

The same functions as behind `sdfeel topology` and `sdfeel clock`, so the same numbers; the answer
has the commands that print them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.costs import round_cost
from sdfeel.algorithm.methods.codecs import CODECS, WAYS
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.clock import LatencyProfile, load_profile, profile_names
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, GRAPHS, Averager, Network
from sdfeel.page.lanes import parts_of
from sdfeel.page.work import Budget, most_links
from sdfeel.simulation.settings import Settings

__all__ = ["answered", "changed", "choices", "number", "profile_toml", "what_if"]

# name: default, least, most. More would keep who asks waiting.
NUMBERS: dict[str, tuple[int, int, int]] = {
    "tau1": (2, 1, 200),
    "tau2": (1, 1, 50),
    "alpha": (5, 1, 100),
    "servers": (10, 1, 200),
    "clients": (5, 1, 500),
    "parameters": (21840, 1, 10**10),
}
RATES = ("cpu", "client_server", "server_server", "server_cloud", "client_cloud")


def choices() -> dict[str, Any]:
    """What can be chosen, and what it is at first."""
    profile = load_profile("paper")
    return {
        "numbers": {
            name: {"value": value, "least": least, "most": most}
            for name, (value, least, most) in NUMBERS.items()
        },
        "words": {
            "scheme": [name for name, row in SCHEMES.items() if row.pace is None],
            "averager": list(AVERAGERS),
            "graph": list(GRAPHS),
            "profile": [name for name in profile_names() if _is_plain(name)],
            **{way: list(CODECS) for way in WAYS},
        },
        "rates": {name: getattr(profile, name) for name in RATES},
        "values": {"scheme": "sd-feel", "averager": "paper", "graph": "ring", "profile": "paper"}
        | dict.fromkeys(WAYS, "float32"),
    }


def what_if(asked: Mapping[str, str]) -> dict[str, Any]:
    """The answer to one question; InputError names what is wrong with it."""
    numbers = {name: number(name, asked, *limits) for name, limits in NUMBERS.items()}
    words = {name: asked.get(name) or value for name, value in choices()["values"].items()}
    known = choices()["words"]["profile"]
    if words["profile"] not in known:
        raise InputError("profile", words["profile"], f"one of {', '.join(known)}")
    profile = load_profile(words["profile"])
    servers, clients = numbers["servers"], numbers["servers"] * numbers["clients"]
    settings = Settings.of(
        {
            "scheme": words["scheme"],
            "schedule": Schedule(numbers["tau1"], numbers["tau2"], numbers["alpha"]),
            "averager": words["averager"],
            "codecs": {way: words[way] for way in WAYS},
        }
    )
    links = most_links(words["graph"], servers)
    Budget("what-if").spend(servers, clients, links, settings)
    clock, plain = changed(profile, asked, clients)
    network = Network.build(words["graph"], servers, numbers["clients"])
    algorithm = settings.algorithm(network, clock, numbers["parameters"])
    if "rounds" in algorithm.pace.breaks:
        raise InputError("scheme", words["scheme"], "has no rounds: nobody waits for another there")
    averager = network.averager(words["averager"], numbers["alpha"])
    return {
        **answered(algorithm, network, averager, profile),
        "settings": {**numbers, **words},
        "commands": _commands(numbers, words, plain),
        "profile": None if plain else profile_toml(clock),
        "plan": None,
    }


def answered(
    algorithm: Algorithm, network: Network, averager: Averager, profile: LatencyProfile
) -> dict[str, Any]:
    """The numbers of an answer. `profile`: as it is without changes; a rate for each is None."""
    cost = round_cost(algorithm)
    rates = {name: getattr(profile, name) for name in RATES}
    return {
        "iterations_per_round": algorithm.schedule.tau,
        "seconds_per_round": cost.total,
        "seconds_per_iteration": cost.total / algorithm.schedule.tau,
        **parts_of(cost.seconds),
        "bytes_per_round": cost.bytes,
        "zeta": network.zeta,
        "contraction": averager.contraction,
        "exchanges": averager.exchanges,
        "links": network.graph.number_of_edges(),
        "negative_weights": averager.has_negative_weights,
        "rates": {name: None if isinstance(rate, tuple) else rate for name, rate in rates.items()},
    }


def changed(
    profile: LatencyProfile, asked: Mapping[str, str], clients: int
) -> tuple[LatencyProfile, bool]:
    """The profile with the rates that were set, and whether it is what it was."""
    rates: dict[str, Any] = {}
    for name in RATES:
        if asked.get(name):
            rate = _real(f"rates.{name}", asked[name])
            if rate != getattr(profile, name):
                rates[name] = rate
    spread = _real("spread", asked.get("spread") or "1")
    if not 1 <= spread <= 1000:
        raise InputError("spread", spread, "fastest device over slowest: 1 to 1000")
    if spread > 1:
        cpu = rates.get("cpu", profile.cpu)
        if isinstance(cpu, tuple):
            raise InputError("spread", spread, "the profile has a speed for each device already")
        drawn = np.random.Generator(np.random.Philox(0)).random(clients)
        rates["cpu"] = tuple((cpu * spread**-drawn).tolist())
    return (replace(profile, **rates), False) if rates else (profile, True)


def profile_toml(profile: LatencyProfile) -> str:
    """A profile as the TOML file that `sdfeel clock --profile` takes."""
    lines = [
        f"flops_per_step = {profile.flops_per_step!r}",
        f"bits_per_parameter = {float(profile.bits_per_parameter)!r}",
        f'cloud_uplink = "{profile.cloud_uplink}"',
        f"seconds_per_message = {float(profile.seconds_per_message)!r}",
        "[rates]",
    ]
    for name in (*RATES, "server_client", "cloud_client"):
        rate = getattr(profile, name)
        if rate is not None:
            shown = [float(r) for r in rate] if isinstance(rate, tuple) else float(rate)
            lines.append(f"{name} = {shown!r}")
    return "\n".join(lines) + "\n"


def _commands(numbers: Mapping[str, int], words: Mapping[str, str], plain: bool) -> list[str]:
    clock = ["sdfeel", "clock"]
    for name, value in {**words, **numbers}.items():
        if name == "profile" and not plain:
            value = "what-if.toml"  # noqa: PLW2901
        clock += [f"--{name}", str(value)]
    topology = ["sdfeel", "topology", words["graph"], "--servers", str(numbers["servers"])]
    topology += ["--averager", words["averager"], "--alpha", str(numbers["alpha"])]
    return [shlex.join(clock), shlex.join(topology)]


def _is_plain(name: str) -> bool:
    """Whether rates are all that it says: the spread of devices is chosen here."""
    profile = load_profile(name)
    alike = profile.devices is None and profile.availability is None
    return alike and profile.flops_per_step is not None


def number(name: str, asked: Mapping[str, str], default: int, least: int, most: int) -> int:
    """A whole number that was asked for; InputError names it if it is none."""
    text = asked.get(name) or str(default)
    if not (text.isdecimal() and len(text) <= 11 and least <= int(text) <= most):
        raise InputError(name, text, f"a whole number from {least} to {most}")
    return int(text)


def _real(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(name, text, "a number above 0")
    return value
