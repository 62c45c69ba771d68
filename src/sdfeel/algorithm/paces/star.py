"""Stars without rounds: a cloud takes each client's model when it comes, and nobody waits.

Every client takes the cloud's model, makes tau steps and hands its own in. With tau_i the number of
updates of the cloud's model since the client took it (0: none in between),

    fedasync  w <- (1 - a_i) w + a_i w_i,  a_i = mixing (1 + tau_i)^-power
              Xie, Koyejo, Gupta: Asynchronous Federated Optimization, arXiv 1903.03934
    fedbuff   w <- w + (rate / size) sum_i (w_i - w_i(0)) / sqrt(1 + tau_i), once `size` have come
              Nguyen et al.: Federated Learning with Buffered Asynchronous Aggregation,
              arXiv 2106.06639

Clients count alike, whatever data they hold, as published.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Literal, TypedDict

import numpy as np

from sdfeel.algorithm.events import SPANS, Event, Group
from sdfeel.algorithm.paces.pace import Pace, bytes_sent
from sdfeel.errors import InputError
from sdfeel.validation import Count, NotNegative, Positive, Share, checked

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm


class Taking(TypedDict, total=False):
    """How the model of a client counts: fields of `Group`."""

    scale: float
    keep: float
    follow: float
    waits: bool


class StarPace(Pace):
    """A pace of one server, whose clients come when ready. Yours is a subclass with `takes`."""

    groups: ClassVar[Literal["servers", "clients"]] = "clients"
    needs: ClassVar[frozenset[str]] = frozenset({"one schedule", "one mixing"})
    breaks: ClassVar[frozenset[str]] = frozenset({"rounds", "clusters"})

    @abstractmethod
    def takes(self, staleness: int, number: int) -> Taking:
        """Return how the cloud takes a client's model.

        Args:
            staleness: updates of its model since the client took it.
            number: how many clients have come, this one included.
        """

    def check(self, algorithm: Algorithm) -> None:
        if algorithm.network.servers != 1:
            raise InputError("pace", self, "is of a star: use it with scheme fedasync or fedbuff")

    def events(self, algorithm: Algorithm, steps: float = math.inf) -> Iterator[Event]:
        network, uplink = algorithm.network, algorithm.uplink
        tau1 = algorithm.schedule.at(0).tau1
        everyone, whole_share = np.ones(network.clients, dtype=bool), np.ones(1)
        upload = uplink.seconds(everyone)
        vectors = algorithm.vectors_down(False)
        down = [uplink.down(away, vectors) for away in (~everyone, everyone)]
        length = tau1 * uplink.latencies.t_cmp + upload
        begun, waited = np.zeros(network.clients), np.zeros(1)
        turns, made = np.zeros((2, network.clients), dtype=np.int64)
        taken = turns.copy()  # the version of the cloud's model that each client began from
        version = came = 0  # updates of that model, and clients that have come
        for number in count():
            ready = begun + length
            client = np.array([np.argmin(ready)])
            at, began = float(ready[client[0]]), begun[client]
            present = algorithm.participation.among(client, int(turns[client[0]]))
            there, how = client[present], Taking(waits=True)
            there = there[uplink.stay(there, began[present], length[there])]
            if len(there):
                came += 1
                how = self.takes(version - int(taken[client[0]]), came)
                version += not how.get("waits", False)
            taken[client] = version
            turns[client] += 1
            is_coming = algorithm.participation.among(client, int(turns[client[0]])).all()
            whole = down[len(there) == 0] if is_coming else None
            seconds = 0.0 if whole is None else float(whole[client[0]])
            begun = begun.copy()
            begun[client] = at + seconds
            first = made[there] + 1
            made[there] += tau1
            k = int(turns[client[0]]) * tau1
            group = Group(
                int(client[0]), 0, k, there, first, made[there], whole_share[: len(there)], **how
            )
            spans = dict.fromkeys(SPANS, np.zeros(1)) | {
                "compute": length[client] - upload[client],
                "upload": upload[client],
                "download": np.array([seconds]),
            }
            sent = bytes_sent(algorithm, len(there), None)
            k, ends = int((turns * tau1).min()), float(begun.max())
            yield Event(number, k, at, ends, (group,), None, began, spans, waited, sent)


@checked("pace")
class FedAsync(StarPace):
    """w <- (1 - a) w + a w_i at every arrival, a = mixing (1 + staleness)^-power.

    >>> sdfeel.FedAsync(mixing=0.5).power
    0.5
    """

    mixing: Share = 0.6
    power: NotNegative = 0.5

    def takes(self, staleness: int, number: int) -> Taking:
        a = self.mixing * (1 + staleness) ** -self.power
        return {"scale": a, "keep": 1 - a, "follow": a}


@checked("pace")
class FedBuff(StarPace):
    """The cloud moves once `size` clients have come, by `rate` times their mean difference.

    >>> sdfeel.train(model, data, network=network, steps=4, scheme="fedbuff").scheme
    'fedbuff'
    """

    size: Count = 10
    rate: Positive = 1.0

    def takes(self, staleness: int, number: int) -> Taking:
        weight = self.rate / self.size / math.sqrt(1 + staleness)
        return {"scale": weight, "follow": 0.0, "waits": number % self.size != 0}
