"""Devices: how fast each client computes and sends, as parts of the profile's rates.

A client's rate of computing is `cpu` times its speed, those of its links are the profile's times
its link. Both are given, drawn or by class:

    [devices]
    speed = [1.0, 0.5, ...]                                      given, one for each client
    speed = {law = "lognormal", spread = 0.5}                    exp(spread x a normal number)
    speed = {law = "log-uniform", least = 0.1, most = 1.0}       least (most / least)^u
    classes = [{name = "phone", share = 0.7, speed = 0.2, link = 0.5}, ...]

What is drawn is a function of (seed, client). Of classes just their shares of the clients come,
rounded to whole clients; which clients those are is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator

from sdfeel.errors import InputError
from sdfeel.tables import from_table, to_table
from sdfeel.validation import NotNegative, Positive, checked, one_or_each

Vector = NDArray[np.float64]

# What a number is drawn for.
SPEED, LINK, CLASS = 1, 2, 3


def uniform(seed: int, purpose: int, count: int) -> Vector:
    """Draw numbers in [0, 1): the first `count` of a stream that belongs to (seed, purpose)."""
    key = np.array([seed, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


@checked()
class Lognormal:
    """Half of the devices are slower than 1: exp(spread x a normal number)."""

    spread: NotNegative

    def draw(self, u: Vector) -> Vector:
        """Return parts of the rates, from numbers in [0, 1)."""
        normal = NormalDist()
        return np.exp([self.spread * normal.inv_cdf(max(x, 2.0**-54)) for x in u])


@checked()
class LogUniform:
    """A law with as many devices between .1 and .2 as between .2 and .4: least (most / least)^u."""

    least: Positive
    most: Positive

    def __post_init__(self) -> None:
        if self.least > self.most:
            raise InputError("least", self.least, f"at most `most`, {self.most:g}")

    def draw(self, u: Vector) -> Vector:
        drawn: Vector = self.least * (self.most / self.least) ** u
        return drawn


Law = Lognormal | LogUniform
LAWS: dict[str, type[Law]] = {"lognormal": Lognormal, "log-uniform": LogUniform}


def _part(value: Any) -> float | tuple[float, ...] | Law:
    if isinstance(value, Law):
        return value
    if isinstance(value, Mapping):
        try:
            law: Law = from_table("", value, LAWS, key="law")
        except InputError as problem:  # `.law`, or a field of the law
            field = f".{problem.field.lstrip('.')}"
            raise InputError(field, problem.value, problem.remedy) from None
        return law
    return one_or_each(value)


Part = Annotated[float | tuple[float, ...] | Law, PlainValidator(_part)]


@checked("devices.classes")
class DeviceClass:
    """A kind of device: its share of all clients, and its parts of the rates."""

    share: Positive
    name: str = ""
    speed: Positive = 1.0
    link: Positive = 1.0


def _classes(value: Any) -> tuple[DeviceClass, ...]:
    remedy = 'a list: [{name = "phone", share = 1.0}]'
    if not isinstance(value, list | tuple):
        raise InputError("devices.classes", value, remedy)
    classes: list[DeviceClass] = []
    for number, kind in enumerate(value):
        if isinstance(kind, Mapping):
            classes.append(DeviceClass(**{"name": f"class {number}", **kind}))
        elif isinstance(kind, DeviceClass):
            classes.append(kind)
        else:
            raise InputError("devices.classes", kind, remedy)
    return tuple(classes)


@dataclass(frozen=True)
class DrawnDevices:
    """Each client's speed and link, and the name of its class ("" without classes)."""

    speed: Vector
    link: Vector
    names: tuple[str, ...]


@checked("devices")
class Devices:
    """Speeds and links of the clients; see the head of this file."""

    speed: Part = 1.0
    link: Part = 1.0
    classes: Annotated[tuple[DeviceClass, ...], PlainValidator(_classes)] = ()

    def __post_init__(self) -> None:
        if not self.classes:
            return
        if self.speed != 1.0 or self.link != 1.0:
            raise InputError("devices.speed", self.speed, "speeds and links, or classes: not both")
        names = [kind.name for kind in self.classes]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InputError("devices.classes", twice[0], "each class needs its own name")
        total = sum(kind.share for kind in self.classes)
        if abs(total - 1) > 1e-9:
            raise InputError("devices.classes", total, "the shares of all classes sum to 1")

    def draw(self, clients: int, seed: int) -> DrawnDevices:
        """The devices of `clients` clients."""
        if self.classes:
            return self._by_class(clients, seed)
        speed = _drawn("devices.speed", self.speed, clients, seed, SPEED)
        link = _drawn("devices.link", self.link, clients, seed, LINK)
        return DrawnDevices(speed, link, ("",) * clients)

    def _by_class(self, clients: int, seed: int) -> DrawnDevices:
        ends = np.rint(np.cumsum([kind.share for kind in self.classes]) * clients).astype(int)
        kinds = np.searchsorted(ends, np.arange(clients), side="right")
        order = np.argsort(uniform(seed, CLASS, clients), kind="stable")
        of = np.empty(clients, dtype=int)
        of[order] = np.minimum(kinds, len(self.classes) - 1)
        speed, link = (np.array([getattr(c, n) for c in self.classes]) for n in ("speed", "link"))
        return DrawnDevices(speed[of], link[of], tuple(self.classes[kind].name for kind in of))

    def table(self) -> dict[str, Any]:
        """Return the devices as a profile's file has them."""
        if self.classes:
            return {"classes": [dict(vars(kind)) for kind in self.classes]}
        return {"speed": _written(self.speed), "link": _written(self.link)}


def _drawn(field: str, part: Part, clients: int, seed: int, purpose: int) -> Vector:
    if isinstance(part, Law):
        return part.draw(uniform(seed, purpose, clients))
    if isinstance(part, tuple) and len(part) != clients:
        raise InputError(field, list(part), f"one number, or a list of {clients}: one a client")
    return np.broadcast_to(np.asarray(part, dtype=float), (clients,)).copy()


def _written(part: Part) -> Any:
    if isinstance(part, Law):
        return to_table(part, LAWS, key="law")
    return list(part) if isinstance(part, tuple) else part
