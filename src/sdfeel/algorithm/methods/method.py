"""A method: what a user may replace in an algorithm. Rows that it remembers, needs, and hooks.

    prepare(rows, periods, mean)                   before groups train: what is constant in a period
    gradient(g, w, rows, step) -> g                every local step, eq. (2); then w <- w - eta_k g
    upload(models, held, period)                   what clients send of their models
    combine(models, shares, held, rows, period)    one model out of those of a cluster, eq. (3)
    learn(moved, move, rows, period)               clients hear what their cluster made of them
    take(before, after, rows, period) -> after     what a server makes of its clients' model
    exchange(models, told, rows, averager, number) in place of eq. (5): servers hear neighbours
    tell(models, sender, receiver, rows, averager) what a server tells a neighbour
    ended(before, after, rows, event, algorithm)   servers have mixed, eq. (5)

All are optional. `gradient` gets tensors of PyTorch, the others arrays of numpy: they run in a
simulation and at an edge server of a deployment. A hook gets the rows of exactly those that the
call is about, by name, and changes them in place:

    hook                  rows of clients            rows of servers
    gradient              (clients, values)          (clients, values), of each one's, to read
    combine, take         -                          (values,)
    learn                 (clients, values)          (values,), to read
    prepare, a list       (clients, values), to read (values,): an entry for each period
    exchange, tell        -                          (all servers, values)
    ended                 (all clients, values)      (all servers, values)

In the models of `upload`, `exchange` and `tell` buffers come last; the others have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from sdfeel.algorithm.events import Event, Group
from sdfeel.algorithm.methods.rates import rates

if TYPE_CHECKING:
    from torch import Tensor

    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.network import Averager

Floats = NDArray[np.floating[Any]]
Rows = Mapping[str, Any]  # named rows, of tensors or of arrays
# told(sender, receiver): the model that a server hears of, and whether that one is known to lie (a
# liar claims what it likes of everything else, too).
Told = Callable[[int, int], tuple[Floats, bool]]
Own = TypeVar("Own", bound="Method")


@dataclass(frozen=True)
class Row:
    """A vector that a method remembers of each client or server.

    Args:
        of: "clients" or "servers".
        first: the value with which it begins, "model" for the model that the run begins with.
        width: how many values; None for as many as the model has trained parameters.
        new_each_period: it begins anew in every upload period, and nobody keeps it in between.
        is_model: it is a model of its own, and `history` has its numbers under the row's name.

    >>> class Counting(sdfeel.Method):
    ...     rows = {"count": sdfeel.Row("clients", width=1)}
    """

    of: Literal["clients", "servers"] = "clients"
    first: float | Literal["model"] = 0.0
    width: int | None = None
    new_each_period: bool = False
    is_model: bool = False


@dataclass(frozen=True, eq=False)
class Step:
    """A local step of some clients, a row each.

    clients      their numbers; k: the iteration; eta: its rate
    anchor       (clients, values): the model that the period began with
    is_first     whether it is the first of the period
    gradient_at  the gradient of each client's loss at other models (clients, values), on the same
                 batch
    """

    clients: NDArray[np.int64]
    k: int
    eta: float
    anchor: Tensor
    is_first: bool
    gradient_at: Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Period:
    """An upload period of a group: what hooks may want to know of it."""

    group: Group
    algorithm: Algorithm

    @property
    def server(self) -> int:
        return self.group.server

    @property
    def clients(self) -> NDArray[np.int64]:
        """The clients that take part, in order."""
        return self.group.clients

    @property
    def shares(self) -> Floats:
        """m-hat over them."""
        return self.group.shares

    @cached_property
    def reach(self) -> Floats:
        """How far a constant gradient of 1 moves each client: for SGD its sum of eta_k."""
        spans = zip(self.group.first.tolist(), self.group.last.tolist(), strict=True)
        return np.array([self.algorithm.reach(first, last) for first, last in spans])

    @cached_property
    def length(self) -> float:
        """The sum of eta_k over the period: the mean of its clients, brought to equal steps."""
        spans = zip(self.group.first.tolist(), self.group.last.tolist(), strict=True)
        sums = [float(rates(self.algorithm.rate, first, last).sum()) for first, last in spans]
        return float((self.group.weights / self.group.scale * sums).sum())

    @property
    def fraction(self) -> float:
        """Which part of the cluster's clients take part."""
        return len(self.clients) / len(self.algorithm.network.clusters.members[self.server])

    @property
    def data_fraction(self) -> float:
        """Which part of the cluster's data they hold."""
        within: Floats = self.algorithm.network.shares.within
        return float(within[self.clients].sum())


@dataclass(frozen=True)
class Affine:
    """A `gradient` that is affine in g, in numbers, so that compiled code can do it.

        g <- g + decay w + prox (w - anchor) + sum of shift[name] times the row of that name

    and, of the method that comes last, v <- momentum v + g; g <- v, or with nesterov
    g <- g + momentum v. With momentum it has one row of clients, v.

    >>> sdfeel.Affine(momentum=0.9).momentum
    0.9
    """

    decay: float = 0.0
    prox: float = 0.0
    shift: Mapping[str, float] | None = None
    momentum: float = 0.0
    nesterov: bool = False


@dataclass(frozen=True)
class InNumbers:
    """A built-in optimizer in numbers, so that compiled code can do it; as `optimizers` has them.

    affine     decay, prox and momentum
    clip       the largest norm of g; None for any
    betas      of adam; None: it is not adam
    decoupled  the weight decay of adamw
    """

    affine: Affine
    clip: float | None = None
    betas: tuple[float, float] | None = None
    eps: float = 0.0
    decoupled: float = 0.0


class Method:
    """Do nothing; see the head of this file.

    >>> class Proximal(sdfeel.Method):
    ...     def gradient(self, g, w, rows, step):
    ...         return g + 0.1 * (w - step.anchor)
    >>> sdfeel.train(model, data, network=network, steps=4, methods=[Proximal()]).iterations
    4
    """

    @property
    def rows(self) -> Mapping[str, Row]:
        """What the method remembers, by name."""
        return {}

    @property
    def needs(self) -> frozenset[str]:
        """Words of `sdfeel.algorithm.compatibility` that must hold for it."""
        return frozenset()

    @property
    def breaks(self) -> frozenset[str]:
        """Words that do not hold with it."""
        return frozenset()

    @property
    def name(self) -> str:
        """What the method is called in messages and checkpoints."""
        return type(self).__name__.lower()

    @property
    def affine(self) -> Affine | None:
        """`gradient` in numbers, proved against it before it is used; None if it is not affine."""
        return None if self.has("gradient") else Affine()

    @property
    def liars(self) -> frozenset[int]:
        """Servers that lie: they do not count in the mean, nor in what is measured of servers."""
        return frozenset()

    def on(self: Own, algorithm: Algorithm) -> Own:
        """The method on this network, with numbers of its own; or refuse what cannot work."""
        return self

    def vectors_down(self, algorithm: Algorithm, is_mixed: bool) -> int:
        """Vectors of a model's length that clients get beside their server's model."""
        return 0

    def prepare(
        self,
        rows: Sequence[Rows | None],
        periods: Sequence[Period],
        mean: Callable[[str, Mapping[int, float]], Floats],
    ) -> None:
        """Prepare the rows of groups before they train.

        Args:
            rows: of each period; None for a group that another process holds.
            periods: of all groups.
            mean: mean(name, weights) is that of a row of servers, with weights by server.
        """

    def gradient(self, g: Tensor, w: Tensor, rows: Rows, step: Step) -> Tensor:
        """Return what clients step along, given their gradients, (clients, values) as w."""
        return g

    def upload(self, models: Floats, held: Floats, period: Period) -> None:
        """Change in place what clients of a group send, (clients, values); they began with held."""

    def combine(
        self, models: Floats, shares: Floats, held: Floats, rows: Rows, period: Period
    ) -> Floats:
        """Return one model of a cluster's models (clients, values), brought to one number of steps.

        Args:
            models: those of the clients that take part; shares: m-hat, which sum to 1.
            held: the model that all of them began with.
            rows: of the server.
            period: what else there is to know.
        """
        return shares @ models

    def learn(self, moved: Floats, move: Floats, rows: Rows, period: Period) -> None:
        """Clients hear what their cluster made of it; moved: of each (clients, values)."""

    def take(self, before: Floats, after: Floats, rows: Rows, period: Period) -> Floats:
        """Return a server's new model, given the one before its clients trained and their mean."""
        return after

    def exchange(
        self, models: Floats, told: Told, rows: Rows, averager: Averager, number: int
    ) -> Floats:
        """Return all servers' models (servers, values) after exchange `number` of this event.

        Args:
            models: before it.
            told: told(sender, receiver), what one server hears from another.
            rows: of all servers.
            averager: the graph and the weights, as `averager.exchange(number)`.
            number: of the exchange, from 0.
        """
        return models

    def tell(
        self, models: Floats, sender: int, receiver: int, rows: Rows, averager: Averager
    ) -> Floats:
        """Return what a server tells a neighbour in an exchange; the honest tell their model."""
        return np.asarray(models[sender])

    def ended(
        self, before: Floats, after: Floats, rows: Rows, event: Event, algorithm: Algorithm
    ) -> None:
        """Every event has ended: all servers' models (servers, values) before and after mixing."""

    def has(self, *hooks: str) -> bool:
        """Return whether the method has a hook: a run does without it where it has not."""
        return any(getattr(type(self), hook) is not getattr(Method, hook) for hook in hooks)
