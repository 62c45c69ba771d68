"""The algorithm on a network whose data is known: all that a run needs to know of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from sdfeel.algorithm.compatibility import check_compatible
from sdfeel.algorithm.events import Array, Event
from sdfeel.algorithm.methods.attacks import Attacks
from sdfeel.algorithm.methods.averaging import AveragingRule
from sdfeel.algorithm.methods.chain import Chain
from sdfeel.algorithm.methods.codecs import Codec
from sdfeel.algorithm.methods.method import Method, Row
from sdfeel.algorithm.methods.optimizers import Optimizer, reach
from sdfeel.algorithm.methods.rates import Rate, rates
from sdfeel.algorithm.methods.server_optimizers import ServerOptimizer
from sdfeel.algorithm.paces import Pace, Synchronous
from sdfeel.algorithm.paces.pace import Mask
from sdfeel.algorithm.participation import Participation
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import Scheme
from sdfeel.clock import LatencyProfile, Uplink
from sdfeel.errors import InputError, located
from sdfeel.network import Averager, Builder, Network

KEPT = 64  # averagers of a graph or a schedule that changes


@dataclass(frozen=True, eq=False)
class Algorithm:
    """An algorithm on a network whose data is known.

    scheme         its row of the table
    network        the scheme's servers
    schedule       when they aggregate: tau1, tau2, alpha
    averager       how servers agree in the first round; `mixing(number)` in another
    participation  who takes part
    uplink         how a model travels from a client, and how long that takes
    parts          methods by the setting that they come from
    rate           eta_k
    codecs         what travels, by way
    pace           who waits for whom
    """

    scheme: Scheme
    network: Network
    schedule: Schedule
    averager: Averager
    participation: Participation
    uplink: Uplink
    parts: Mapping[str, Method]
    rate: Rate
    codecs: Mapping[str, Codec]
    pace: Pace
    agree: str | Averager | Builder = "paper"
    _mixings: dict[object, Averager] = field(default_factory=dict, repr=False)
    _having: dict[str, tuple[Method, ...]] = field(default_factory=dict, repr=False)
    _reaches: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        scheme: Scheme,
        network: Network,
        *,
        profile: LatencyProfile,
        parameters: int,
        schedule: Schedule,
        averager: str | Averager | Builder,
        participation: float,
        averaging_rule: AveragingRule | None,
        server_optimizer: ServerOptimizer | None,
        optimizer: Optimizer,
        correction: Method | None,
        methods: Sequence[Method],
        attacks: Attacks | None,
        lr: Rate,
        codecs: Mapping[str, Codec],
        pace: Pace,
        seed: int,
    ) -> Algorithm:
        """Put a row of the table on `network`, whose clients' sample counts are set.

        Args:
            profile: what computing and sending cost.
            parameters: numbers in a model.
            others: as `Settings` has checked them.
        """
        agree = scheme.averager or averager
        if scheme.servers == "edge":
            servers = network
        elif scheme.servers == "clients":
            servers = network.apart()
        else:  # nobody to agree with, and nothing to pay for it
            servers, agree = network.merged(), scheme.averager or "paper"
        schedule = scheme.schedule(schedule)
        messages = {way: codec.bits(parameters) for way, codec in codecs.items() if not codec.exact}
        uplink = Uplink.of(profile, network, servers, parameters, scheme.uplink, messages, seed)
        parts: dict[str, Method | None] = {"correction": correction}
        parts |= {f"methods[{number}]": method for number, method in enumerate(methods)}
        parts |= {"averaging_rule": averaging_rule, "server_optimizer": server_optimizer}
        chosen = servers.at(0).averager(agree, schedule.at(0).alpha)
        parts |= {"averager": chosen.rule, "attacks": attacks, "optimizer": optimizer}
        algorithm = cls(
            scheme=scheme,
            network=servers,
            schedule=schedule,
            averager=chosen,
            participation=Participation(
                clients=network.clients,
                seed=seed,
                beta=participation,
                drawn=scheme.drawn,
                reach=network.clusters.members[0] if scheme.reach == "cluster" else None,
            ),
            uplink=uplink,
            parts={field: method for field, method in parts.items() if method is not None},
            rate=lr,
            codecs=codecs,
            pace=_pace(scheme, pace),
            agree=agree,
        )
        return algorithm._checked()

    def _checked(self) -> Algorithm:
        """Return the algorithm with methods that know its network; refuse what cannot work."""
        check_compatible(self)
        self.pace.check(self)
        names = [method.name for method in self.parts.values()]
        for where, method in self.parts.items():
            if names.count(method.name) > 1:
                raise InputError(where, method.name, "two methods have this name: rename one")
        first = 0
        for number, (_, rounds) in enumerate(self.network.turns or ()):
            with located(f"graphs[{number}]: "):
                self.mixing(first)
            first += rounds
        on_network = {where: method.on(self) for where, method in self.parts.items()}
        return replace(self, parts=on_network, _having={})

    # Methods

    @property
    def methods(self) -> tuple[Method, ...]:
        """Return all methods; the optimizer is the last."""
        return tuple(self.parts.values())

    def having(self, hook: str) -> tuple[Method, ...]:
        """The methods with a hook."""
        if hook not in self._having:
            self._having[hook] = tuple(method for method in self.methods if method.has(hook))
        return self._having[hook]

    @cached_property
    def chain(self) -> Chain:
        """Return the methods that a local step goes through."""
        optimizer = self.parts["optimizer"]
        assert isinstance(optimizer, Optimizer)  # noqa: S101 - `of` says so
        others = [method for method in self.methods if method is not optimizer]
        return Chain(optimizer, tuple(method for method in others if method.has("gradient")))

    @cached_property
    def rows(self) -> dict[str, Row]:
        """Return all that methods remember, as `name.row`."""
        return {
            f"{method.name}.{name}": row
            for method in self.methods
            for name, row in method.rows.items()
        }

    def reach(self, first: int, last: int) -> float:
        """Return how far a constant gradient of 1 moves a client in these iterations.

        For SGD the sum of eta_k. Of affine optimizers only.
        """
        if (first, last) not in self._reaches:
            affine = self.parts["optimizer"].affine
            if affine is None:
                optimizer = self.parts["optimizer"]
                raise InputError("optimizer", optimizer, "is not affine: its reach is not known")
            if len(self._reaches) >= KEPT:
                self._reaches.clear()
            etas = [float(eta) for eta in rates(self.rate, first, last)]
            self._reaches[first, last] = reach(affine, etas)
        return self._reaches[first, last]

    def reach_of_round(self, event: Event) -> float:
        """Return the same over all periods of the round that an event ends."""
        schedule, total = self.schedule.at(event.round), 0.0
        begin = event.k - schedule.tau1 * schedule.tau2
        for end in range(begin + schedule.tau1, event.k + 1, schedule.tau1):
            total += self.reach(end - schedule.tau1 + 1, end)
        return total

    def vectors_down(self, is_mixed: bool) -> int:
        """Vectors of a model's length that clients get beside their server's model."""
        return sum(method.vectors_down(self, is_mixed) for method in self.methods)

    # What happens when

    def events(self, steps: float = math.inf) -> Iterator[Event]:
        """Yield all events, in the order of simulated time."""
        return self.pace.events(self, steps)

    def mixing(self, number: int) -> Averager:
        """Return how servers agree at the end of a round, counted from 0."""
        if not self.network.changes and not self.schedule.changes:
            return self.averager
        network, alpha = self.network.at(number), self.schedule.at(number).alpha
        links = tuple((min(a, b), max(a, b)) for a, b in sorted(network.graph.edges()))
        key = frozenset(links), alpha
        if key not in self._mixings:
            if len(self._mixings) >= KEPT:
                self._mixings.clear()
            averager = network.averager(self.agree, alpha)
            self._mixings[key] = replace(averager, links=links)
        return self._mixings[key]

    @cached_property
    def counted(self) -> Array:
        """The weight of each server in u_k: m-tilde, over the honest alone."""
        shares = self.network.shares.cluster.copy()
        liars = [server for method in self.methods for server in method.liars]
        if not liars:
            return shares
        shares[liars] = 0.0
        honest: Array = shares / shares.sum()
        return honest

    @property
    def mixings(self) -> list[Averager]:
        """Return how servers agree, as far as that is known before the run."""
        return [self.averager, *self._mixings.values()]

    def present(self, period: int, steps: int, begun: Array) -> Mask:
        """Return the clients that take part in a period, which begins at `begun` at each server.

        A device takes part if it is on from then until it has made its steps and uploaded.
        """
        drawn = self.participation.present(period)
        return self.uplink.there(drawn, begun[self.network.clusters.server_of], steps)


def _pace(scheme: Scheme, pace: Pace) -> Pace:
    """Return the scheme's own pace, if it has one, with the user's numbers."""
    if scheme.pace is None or type(pace) is type(scheme.pace):
        return pace
    if pace != Synchronous():
        raise InputError("pace", pace, f"scheme {scheme.name} has its own: {scheme.pace}")
    return scheme.pace
