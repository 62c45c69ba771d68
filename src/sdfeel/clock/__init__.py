"""The clock room: what computing, uploading and exchanging cost in simulated seconds."""

from sdfeel.clock.availability import Availability, Presence
from sdfeel.clock.devices import DeviceClass, Devices, Law
from sdfeel.clock.event_clock import Destination, EventClock, RoundCost, Uplink
from sdfeel.clock.formula import (
    fedavg_round,
    feel_round,
    hierfavg_round,
    paper_latency,
    sdfeel_round,
)
from sdfeel.clock.profile_table import profile_table
from sdfeel.clock.profiles import (
    Latencies,
    LatencyProfile,
    load_profile,
    profile_names,
    profile_of,
)

__all__ = [
    "Availability",
    "Destination",
    "DeviceClass",
    "Devices",
    "EventClock",
    "Latencies",
    "LatencyProfile",
    "Law",
    "Presence",
    "RoundCost",
    "Uplink",
    "fedavg_round",
    "feel_round",
    "hierfavg_round",
    "load_profile",
    "paper_latency",
    "profile_names",
    "profile_of",
    "profile_table",
    "sdfeel_round",
]
