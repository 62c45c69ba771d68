"""The clock room: what computing, uploading and exchanging cost in simulated seconds."""

from sdfeel.clock.availability import Availability, Diurnal, Exponential, Presence, Trace
from sdfeel.clock.devices import DeviceClass, Devices, Lognormal, LogUniform
from sdfeel.clock.event_clock import Destination, EventClock, Uplink
from sdfeel.clock.profiles import (
    Latencies,
    LatencyProfile,
    load_profile,
    profile_names,
    profile_of,
    profile_table,
)

__all__ = [
    "Availability", "Destination", "DeviceClass", "Devices", "Diurnal", "EventClock", "Exponential",
    "Latencies", "LatencyProfile", "LogUniform", "Lognormal", "Presence", "Trace", "Uplink",
    "load_profile", "profile_names", "profile_of", "profile_table",
]  # fmt: skip
