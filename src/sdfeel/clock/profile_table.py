"""A latency profile as the table of its file: what `profile_of` reads back as the same profile."""

from __future__ import annotations

from typing import Any

from sdfeel.clock.availability import LAWS as TIMES
from sdfeel.clock.availability import Availability
from sdfeel.clock.devices import LAWS as PARTS
from sdfeel.clock.devices import Devices, Law, Part
from sdfeel.clock.profiles import DOWN, RATES, LatencyProfile

__all__ = ["profile_table"]


def profile_table(profile: LatencyProfile) -> dict[str, Any]:
    """All of it but the name, in plain numbers, lists and words."""
    flops = profile.flops_per_step
    table: dict[str, Any] = {
        "flops_per_step": "counted" if flops is None else float(flops),
        "bits_per_parameter": float(profile.bits_per_parameter),
        "seconds_per_message": float(profile.seconds_per_message),
        "cloud_uplink": profile.cloud_uplink,
        "summary": profile.summary,
        "rates": {
            name: list(rate) if isinstance(rate, tuple) else float(rate)
            for name in (*RATES, *DOWN)
            if (rate := getattr(profile, name)) is not None
        },
    }
    if profile.links:
        table["links"] = {f"{a}-{b}": float(rate) for (a, b), rate in profile.links.items()}
    if profile.devices is not None:
        table["devices"] = _devices(profile.devices)
    if profile.availability is not None:
        table["availability"] = _availability(profile.availability)
    return table


def _devices(devices: Devices) -> dict[str, Any]:
    if devices.classes:
        return {"classes": [dict(vars(own)) for own in devices.classes]}
    return {"speed": _part(devices.speed), "link": _part(devices.link)}


def _part(part: Part) -> Any:
    if isinstance(part, Law):
        return {"law": part.law} | {name: getattr(part, name) for name in PARTS[part.law]}
    return list(part) if isinstance(part, tuple) else part


def _availability(given: Availability) -> dict[str, Any]:
    if given.trace:
        return {"trace": [list(span) for span in given.trace]}
    return {"law": given.law} | {name: getattr(given, name) for name in TIMES[given.law]}
