"""What follows from the deployment file: the core's network, averager and schedule, by name."""

from __future__ import annotations

from functools import cached_property

from sdfeel.algorithm.algorithm import Algorithm
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.exchanges import Exchange
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES
from sdfeel.clock import LatencyProfile
from sdfeel.deploy.config import Deployment
from sdfeel.deploy.members import Members
from sdfeel.deploy.pace import plans, seconds_of

__all__ = ["Topology"]

STEPS, BITS = 1e12, 1e30  # a second
INSTANT = LatencyProfile("instant", 1.0, STEPS, BITS, BITS, BITS, BITS)


class Topology:
    """What follows from the file: how long and how often, and who is a member when."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        schedule = deployment.schedule
        self.tau1, self.tau2 = schedule.tau1, schedule.tau2
        self.periods = schedule.iterations // schedule.tau1
        self._members = Members(deployment)
        is_plain = isinstance(schedule.averager, str) and deployment.correction is None
        is_plain &= isinstance(deployment.averaging.rule, str)
        if not is_plain or not all(codec.exact for _, codec in deployment.codecs):
            self.algorithm  # noqa: B018 - or what does not go together

    def at(self, period: int) -> Members:  # noqa: ARG002
        """The members of a period: those of the file, in every one."""
        return self._members

    @cached_property
    def algorithm(self) -> Algorithm:
        """The simulator's own, for methods that ask what a period or a round is.

        Raises InputError if one part needs what another breaks.
        """
        deployment, rule = self.deployment, self.deployment.averaging
        schedule = Schedule(self.tau1, self.tau2, deployment.schedule.alpha)
        return Algorithm.of(
            SCHEMES["sd-feel"],
            self.at(0).network,
            profile=INSTANT,  # nobody asks how long anything takes
            parameters=deployment.limits.values,
            schedule=schedule,
            averager=self.averager,
            participation=1.0,
            averaging_rule=None if rule.rule == "mean" else rule.as_rule,
            server_optimizer=deployment.server_optimizer,
            optimizer=deployment.local.rule,
            correction=deployment.correction,
            methods=(),
            attacks=None,
            lr=deployment.lr,
            codecs=dict(deployment.codecs),
            pace=deployment.pace,
            seed=deployment.seed,
        )

    @property
    def averager(self) -> str | Exchange:
        """Of a run. Without rounds edges mix by flows: Metropolis' weights made smaller."""
        averager = self.deployment.schedule.averager
        is_flow = self.deployment.most_steps and isinstance(averager, str)
        return "metropolis" if is_flow else averager

    @property
    def correction(self) -> Correction | None:
        """The correction with its numbers for this network."""
        if self.deployment.correction is None:
            return None
        correction = self.algorithm.parts["correction"]
        assert isinstance(correction, Correction)  # noqa: S101 - it is that of the file
        return correction

    def seconds(self, edge: str) -> float:
        """T_d of an edge that waits for no other cluster; 0 in rounds."""
        return self._seconds[edge]

    def plan(self, edge: str) -> int:
        """The periods that an edge makes."""
        return self._plans[edge]

    @cached_property
    def _seconds(self) -> dict[str, float]:
        return seconds_of(self.deployment)

    @cached_property
    def _plans(self) -> dict[str, int]:
        return plans(self.deployment)

    def counted(self, done: int, edge: str, me: str) -> int:
        """How far an edge is, in periods of another one."""
        return done * self.plan(me) // self.plan(edge)

    def is_inter(self, period: int) -> bool:
        """Whether exchanges follow the averaging inside clusters at the end of this period."""
        return period % self.tau2 == 0
