"""The algorithm on a network whose data is known: all that the loop needs to know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.apart import check_apart
from sdfeel.algorithm.averaging import AveragingRule
from sdfeel.algorithm.changing import check_changing
from sdfeel.algorithm.codec_check import check_codecs
from sdfeel.algorithm.codecs import Codec, codecs_of
from sdfeel.algorithm.correction import Correction, correction_of
from sdfeel.algorithm.local import SGD, LocalRule, local_rule
from sdfeel.algorithm.pace import Event, Mask, Pace, RoundPace, Synchronous, TurnPace
from sdfeel.algorithm.paces import pace_of
from sdfeel.algorithm.participation import Participation
from sdfeel.algorithm.rates import Constant, Rate, rate_of, rates
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import Scheme, scheme_of
from sdfeel.algorithm.server_rule import ServerRule, server_rule
from sdfeel.algorithm.star import StarPace
from sdfeel.clock import EventClock, LatencyProfile, RoundCost, Uplink
from sdfeel.errors import InputError
from sdfeel.network import Averager, Builder, Network

__all__ = ["Algorithm"]

KEPT = 64  # averagers of a graph that changes


@dataclass(frozen=True, eq=False)
class Algorithm:
    """What is done on a network whose data is known: all that the loop needs to know.

    scheme         the name of its row
    network        the scheme's servers
    schedule       when they aggregate: tau1, tau2, alpha
    averager       how they agree
    participation  who is there
    uplink         how a model travels from a client, and how long that takes
    rule           how a server takes its clients; None for the weighted mean, eq. (3)
    server         what it does with that; None: it is its model
    local, rate    what a client does with a gradient, and eta_k
    codecs         what travels, by way
    pace           who waits for whom
    correction     of drift, with its gamma on this network; None for none
    each           whether each server's own model is evaluated, not their mean
    agree          of what `averager` was built, for a graph that changes
    """

    scheme: str
    network: Network
    schedule: Schedule
    averager: Averager
    participation: Participation
    uplink: Uplink
    rule: AveragingRule | None = None
    server: ServerRule | None = None
    local: LocalRule = field(default_factory=SGD)
    rate: Rate = field(default_factory=Constant)
    codecs: Mapping[str, Codec] = field(default_factory=lambda: codecs_of(None))
    pace: Pace = field(default_factory=Synchronous)
    correction: Correction | None = None
    each: bool = False
    agree: str | Averager | Builder = "paper"
    _built: dict[frozenset[frozenset[int]], Averager] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        scheme: str | Scheme,
        network: Network,
        schedule: Schedule | None = None,
        *,
        profile: LatencyProfile,
        parameters: int,
        averager: str | Averager | Builder = "paper",
        participation: float = 1.0,
        averaging_rule: AveragingRule | None = None,
        server: str | ServerRule | None = None,
        local: str | LocalRule = "sgd",
        lr: float | Rate | Callable[[int], float] = 0.01,
        codecs: Mapping[str, str | Codec] | None = None,
        pace: str | Pace = "synchronous",
        correction: str | Correction | None = None,
        seed: int = 0,
    ) -> Algorithm:
        """A row of the table on `network`, whose clients' sample counts are set.

        profile     what computing and sending cost
        parameters  numbers in a model
        """
        row = scheme_of(scheme)
        agree = row.averager or averager
        if row.servers == "edge":
            servers = network
        elif row.servers == "clients":
            servers = network.apart()
        else:  # nobody to agree with, and nothing to pay for it
            servers, agree = network.merged(), row.averager or "paper"
        own_schedule = row.schedule(schedule or Schedule())
        chosen = codecs_of(codecs)
        messages = {way: own.bits(parameters) for way, own in chosen.items() if not own.exact}
        if row.uplink == "nobody":
            uplink = Uplink.between_clients(profile, network, servers, parameters, messages, seed)
        else:
            uplink = Uplink.of(profile, network, parameters, row.uplink, messages, seed)
        found = cls(
            scheme=row.name,
            network=servers,
            schedule=own_schedule,
            averager=servers.averager(agree, own_schedule.alpha),
            participation=Participation(
                clients=network.clients,
                seed=seed,
                beta=participation,
                drawn=row.drawn,
                reach=network.clusters.members[0] if row.reach == "cluster" else None,
            ),
            uplink=uplink,
            rule=averaging_rule,
            server=server_rule(server),
            local=local_rule(local),
            rate=rate_of(lr),
            codecs=chosen,
            pace=_pace(row, pace_of(pace)),
            each=row.each,
            agree=agree,
        )
        found.pace.check(found)
        asked = correction_of(correction)
        _check_turns(found, asked)
        if row.servers == "clients":
            check_apart(found, asked)
        if servers.changes:
            check_changing(found, asked)
        if asked is not None:
            found = replace(found, correction=asked.on(found))
        check_codecs(found)
        return found

    def reach(self, last: int, periods: int = 1) -> float:
        """By how much a constant gradient of 1 moves a client in upload periods up to `last`."""
        tau1, total = self.schedule.tau1, 0.0
        for end in range(last - (periods - 1) * tau1, last + 1, tau1):
            total += self.local.reach([float(eta) for eta in rates(self.rate, end - tau1 + 1, end)])
        return total

    def mixing_after(self, k: int) -> Averager:
        """How servers agree after iteration k, on the graph of that round."""
        if not self.network.changes:
            return self.averager
        return self.mixing_on(self.network.at(k // self.schedule.tau - 1))

    @property
    def mixings(self) -> list[Averager]:
        """How servers agree: on each graph that is known before the run."""
        return [self.averager, *self._built.values()]

    def mixing_on(self, network: Network) -> Averager:
        """How servers agree on another graph."""
        links = tuple((min(a, b), max(a, b)) for a, b in sorted(network.graph.edges()))
        key = frozenset(frozenset(link) for link in links)
        if key not in self._built:
            if len(self._built) >= KEPT:
                self._built.clear()
            averager = network.averager(self.agree, self.schedule.alpha)
            self._built[key] = replace(averager, links=links)
        return self._built[key]

    def present(self, period: int, at: NDArray[np.float64] | None = None) -> Mask:
        """Who takes part in an upload period that begins `at` (of each server); None: all are on.

        A device is there if it is on from the beginning of the period until it has uploaded.
        """
        asked = self.participation.present(period)
        if at is None or self.uplink.presence is None:
            return asked
        begin = at[self.network.clusters.server_of]
        return self.uplink.there(asked, begin, self.schedule.tau1)

    def clock(self) -> EventClock:
        """A clock that shows 0."""
        return EventClock(self.network, self.uplink)

    @property
    def rounds(self) -> RoundPace:
        """The pace, if it has rounds of all servers."""
        if not isinstance(self.pace, RoundPace):
            raise InputError("pace", self.pace, "has no rounds: every server goes at its own")
        return self.pace

    def end(self, event: Event, clock: EventClock) -> None:
        """The clock, once an upload period is over and its models are on their way down again."""
        self.rounds.end(event, clock)
        if clock.uplink.down(event.clients, 0) is not None:
            coming = self.rounds.next(event.last + 1, self, clock.at).clients
            clock.broadcast(coming, ~event.clients, self._vectors_down(event))

    def _vectors_down(self, event: Event) -> int:
        if self.correction is None or event.mixing is None:
            return 0
        return self.correction.vectors_down(self)

    def round_bytes(self) -> dict[str, float]:
        """Bytes of one round by way, with everyone present who can be."""
        everyone = replace(self, participation=replace(self.participation, beta=1.0))
        bits, found = self.uplink.bits, dict.fromkeys(("up", "down", "between"), 0.0)
        for k in range(1, self.schedule.tau + 1, self.schedule.tau1):
            event = self.rounds.next(k, everyone)
            down = bits["down"] + self._vectors_down(event) * bits["whole"]
            found["up"] += int(event.clients.sum()) * bits["up"] / 8
            found["down"] += int(event.clients.sum()) * down / 8
            if event.mixing is not None:
                found["between"] += event.mixing.models_sent * bits["between"] / 8
        return found

    def round_cost(self) -> RoundCost:
        """What one round costs with everyone present who can be."""
        everyone = replace(self, participation=replace(self.participation, beta=1.0))
        clock = self.clock()
        compute = upload = exchange = download = now = 0.0
        for k in range(1, self.schedule.tau + 1):
            event = self.rounds.next(k, everyone)
            clock.local_updates(1)
            compute, now = (
                compute + clock.seconds(event.clients) - now,
                clock.seconds(event.clients),
            )
            if k == event.last:
                self.rounds.end(replace(event, mixing=None), clock)
                upload, now = (
                    upload + clock.seconds(event.clients) - now,
                    clock.seconds(event.clients),
                )
            if k == event.last and event.mixing is not None:
                clock.exchange(event.mixing)
                exchange, now = clock.seconds(event.clients) - now, clock.seconds(event.clients)
            if k == event.last:
                clock.broadcast(event.clients, ~event.clients, self._vectors_down(event))
                download += clock.seconds(event.clients) - now
                now = clock.seconds(event.clients)
        return RoundCost(compute, upload, exchange, now, download)


def _pace(row: Scheme, asked: Pace) -> Pace:
    """The scheme's own pace, if it has one, with the user's numbers."""
    if row.pace is None or type(asked) is type(row.pace):
        return asked
    if asked != Synchronous():
        raise InputError("pace", asked, f"scheme {row.name} has its own: {row.pace}")
    return row.pace


def _check_turns(found: Algorithm, correction: Correction | None) -> None:
    """What is made for rounds is refused by name where there are none."""
    if not isinstance(found.pace, TurnPace):
        return
    why = f"not with the pace {type(found.pace).__name__}: it needs rounds of all servers"
    if correction is not None:
        raise InputError("correction", correction, why)
    if found.rule is not None and isinstance(found.pace, StarPace):
        alone = f"{type(found.pace).__name__} takes one client at a time: there is none to compare"
        raise InputError("averaging_rule", found.rule, alone)
    if found.server is not None:
        raise InputError("server", found.server, f"{why}; a server's model moves by its pace there")
    if not found.codecs["between"].exact:
        between = f"{why}; of a server that mixes, each neighbour would hold something else"
        raise InputError("codecs.between", found.codecs["between"], between)
