"""Attacks: what lying clients upload, and what lying servers tell their neighbours.

A liar knows everything. With w what it trained, h what it began with, and mu and sigma the mean and
the deviation of the honest (in a client's cluster, or next to the server that it lies to):

    sign-flip      h - s (w - h): the opposite of what it learned, s times
    huge           w + s in every value
    alie           mu - s sigma: a little is enough (Baruch et al., 2019)
    inner-product  h - s (mu - h): against the mean of the honest (Xie et al., 2019)
    mimic          the model of the first of the honest, whoever asks (Karimireddy et al., 2022)

and of servers only, with x the model of the server that it lies to:

    drag           x + s times the length of its last movement, always in one direction
    dissensus      x, pushed away from its honest neighbours as strongly as they pull, s times
                   (He et al., 2022)
    spectral       x, pushed along the slowest mode of the honest graph, s times
                   (Gaucher et al., 2025)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from sdfeel.algorithm.methods.method import Floats, Method, Period, Row, Rows
from sdfeel.errors import InputError, closest
from sdfeel.network import Averager
from sdfeel.validation import Positive, checked

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.events import Event

Name = Literal[
    "sign-flip", "huge", "alie", "inner-product", "mimic", "drag", "dissensus", "spectral"
]
LIES: tuple[str, ...] = get_args(Name)
OF_CLIENTS = LIES[:5]
STRENGTHS = {
    "sign-flip": 10.0, "huge": 1e3, "alie": 1.5, "inner-product": 2.0, "mimic": 1.0, "drag": 2.0,
    "dissensus": 1.0, "spectral": 10.0,
}  # fmt: skip


@checked("attacks")
class Lie:
    """A lie and its strength s; where none is given, the usual one of its kind.

    >>> sdfeel.Lie("sign-flip", strength=30).scale
    30.0
    """

    name: Name
    strength: Positive | None = None

    @property
    def scale(self) -> float:
        """The strength that is used."""
        return STRENGTHS[self.name] if self.strength is None else self.strength


def _lies(who: str, known: tuple[str, ...]) -> PlainValidator:
    """Lies by number; as files have them, too: names, or tables, by numbers as text."""

    def check(value: Any) -> dict[int, Lie]:
        if not isinstance(value, Mapping):
            raise InputError("", value, f'lies by number, such as {{3: "{known[0]}"}}')
        return {_number(who, key): _lie(f"{who}.{key}", lie, known) for key, lie in value.items()}

    return PlainValidator(check)


def _number(who: str, key: Any) -> int:
    text = str(key)
    if isinstance(key, bool) or not text.isdecimal() or len(text) > 9:
        raise InputError(f"attacks.{who}", key, "the number of one that lies, from 0")
    return int(text)


def _lie(field: str, given: Any, known: tuple[str, ...]) -> Lie:
    table = {"name": given} if isinstance(given, str) else given
    if isinstance(table, Mapping) and table.get("name") in known:
        for key in set(table) - {"name", "strength"}:
            raise InputError(f"attacks.{field}.{key}", table[key], "a lie has name and strength")
        return Lie(**table)
    if not isinstance(given, Lie) or given.name not in known:
        raise InputError(f"attacks.{field}", given, closest(str(given), known))
    return given


@checked("attacks")
class Attacks(Method):
    """Who lies, and how. The mean, and what is measured of servers, is that of the honest.

    Args:
        clients: lies by number of the client.
        servers: lies by number of the server; its clients and its own model stay as they are.

    >>> attacks = sdfeel.Attacks(servers={1: "dissensus"}, clients={0: sdfeel.Lie("huge", 10)})
    >>> sdfeel.train(model, data, network=network, steps=4, attacks=attacks).iterations
    4
    """

    clients: Annotated[Mapping[int, Lie], _lies("clients", OF_CLIENTS)] = field(
        default_factory=dict
    )
    servers: Annotated[Mapping[int, Lie], _lies("servers", LIES)] = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[str]:
        if not self.servers:
            return frozenset({"clusters"})
        # Which mode is the slowest is a matter of all exchanges of a round.
        is_spectral = any(lie.name == "spectral" for lie in self.servers.values())
        return frozenset({"several servers"} | ({"rounds"} if is_spectral else set()))

    @property
    def rows(self) -> Mapping[str, Row]:
        """The model that each server had after the last exchange."""
        return {"last": Row("servers", first="model")} if self.servers else {}

    @property
    def liars(self) -> frozenset[int]:
        return frozenset(self.servers)

    def on(self, algorithm: Algorithm) -> Attacks:
        counts = {"clients": algorithm.network.clients, "servers": algorithm.network.servers}
        for who, count in counts.items():
            for number in getattr(self, who):
                if number >= count:
                    raise InputError(f"attacks.{who}", number, f"{who} are 0 to {count - 1}")
        if self.servers and len(self.servers) >= counts["servers"]:
            raise InputError("attacks.servers", len(self.servers), "one server must be honest")
        return self

    def upload(self, models: Floats, held: Floats, period: Period) -> None:
        numbers = period.clients.tolist()
        lying = [place for place, client in enumerate(numbers) if client in self.clients]
        honest = np.delete(models, lying, axis=0).astype(np.float64)
        for place in lying:
            others = honest if len(honest) else models[place][None].astype(np.float64)
            lie = self.clients[numbers[place]]
            models[place] = _told(lie, models[place], held, others)

    def tell(
        self, models: Floats, sender: int, receiver: int, rows: Rows, averager: Averager
    ) -> Floats:
        if sender not in self.servers:
            return np.asarray(models[sender])
        lie, hearing, size = self.servers[sender], models[receiver], rows["last"].shape[1]
        weights = averager.exchange(0)[:, receiver]
        near = [j for j in np.flatnonzero(weights).tolist() if j not in self.servers]
        if lie.name in OF_CLIENTS:
            last = models[sender].copy()
            last[:size] = rows["last"][sender]
            return _told(lie, models[sender], last, models[near])
        if lie.name == "drag":
            moved = float(np.linalg.norm(hearing[:size] - rows["last"][receiver]))
            return np.asarray(hearing + lie.scale * moved / np.sqrt(len(hearing)))
        if lie.name == "dissensus":
            pull = sum(weights[j] * (models[j] - hearing) for j in near if j != receiver)
            lying = sum(weights[j] for j in self.servers)
            return np.asarray(hearing - lie.scale * pull / lying)
        mode = _slowest(averager, frozenset(self.servers))
        return np.asarray(hearing + lie.scale * mode[receiver] * (mode @ models))

    def ended(
        self, before: Floats, after: Floats, rows: Rows, event: Event, algorithm: Algorithm
    ) -> None:
        if self.servers and event.mixing is not None:
            among = slice(None) if event.mixing.among is None else list(event.mixing.among)
            rows["last"][among] = after[among]

    def table(self) -> dict[str, Any]:
        """Return them as a file has them."""
        return {
            who: {str(number): _plain(lie) for number, lie in getattr(self, who).items()}
            for who in ("clients", "servers")
            if getattr(self, who)
        }


def _plain(lie: Lie) -> Any:
    return lie.name if lie.strength is None else {"name": lie.name, "strength": lie.strength}


def _told(lie: Lie, model: Floats, held: Floats, honest: Floats) -> Floats:
    """What a liar says in place of its model, whoever listens."""
    if lie.name == "sign-flip":
        return np.asarray(held - lie.scale * (model - held))
    if lie.name == "huge":
        return np.asarray(model + lie.scale)
    if lie.name == "mimic":
        return np.asarray(honest[0])
    mean = honest.mean(axis=0)
    if lie.name == "alie":
        return np.asarray(mean - lie.scale * honest.std(axis=0))
    return np.asarray(held - lie.scale * (mean - held))


@lru_cache(maxsize=8)
def _slowest(averager: Averager, liars: frozenset[int]) -> NDArray[np.float64]:
    """The mode of the honest servers' disagreement that exchanges shrink the least; 0 of liars."""
    honest = [d for d in range(len(averager.shares)) if d not in liars]
    off = averager.exchange(0)[np.ix_(honest, honest)].copy()
    np.fill_diagonal(off, 0.0)
    laplacian = np.diag((off + off.T).sum(axis=0) / 2) - (off + off.T) / 2
    mode = np.zeros(len(averager.shares))
    mode[honest] = np.linalg.eigh(laplacian)[1][:, min(1, len(honest) - 1)]
    return mode
