"""What a schedule, an averager and methods come to under the other settings of a run."""

from __future__ import annotations

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile
from sdfeel.network import Averager, Network
from sdfeel.planner.candidates import Assemble
from sdfeel.planner.methods import Methods
from sdfeel.simulation.settings import Settings

__all__ = ["assembling"]


def assembling(
    settings: Settings, network: Network, profile: LatencyProfile, parameters: int
) -> Assemble:
    """On this network, for models of so many numbers."""

    def assemble(schedule: Schedule, averager: Averager, methods: Methods) -> Algorithm:
        update = {"schedule": schedule, "averager": averager, "codecs": methods.codecs}
        changed = settings.model_copy(update=update | {"correction": methods.correction})
        return changed.algorithm(network, profile, parameters)

    return assemble
