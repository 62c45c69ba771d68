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

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sdfeel.errors import InputError, closest

__all__ = ["DeviceClass", "Devices", "DrawnDevices", "Law", "numbers_of"]

# What a number is drawn for.
SPEED, LINK, CLASS = 1, 2, 3
LAWS = {"lognormal": ("spread",), "log-uniform": ("least", "most")}


def numbers_of(seed: int, purpose: int, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1): the first `count` of a stream that belongs to (seed, purpose)."""
    key = np.array([seed, purpose], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(count)


@dataclass(frozen=True)
class Law:
    """A law by which parts of a rate are drawn; `LAWS` has the numbers that each needs."""

    law: str
    spread: float = 0.0
    least: float = 1.0
    most: float = 1.0

    def __post_init__(self) -> None:
        if self.law not in LAWS:
            raise InputError("devices.law", self.law, closest(str(self.law), LAWS))
        if self.law == "lognormal" and not (math.isfinite(self.spread) and self.spread >= 0):
            raise InputError("devices.spread", self.spread, "a finite number, not below 0")
        for name in ("least", "most"):
            _above_0(f"devices.{name}", getattr(self, name))
        if self.least > self.most:
            raise InputError("devices.least", self.least, f"at most `most`, {self.most:g}")

    def draw(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """From numbers in [0, 1)."""
        if self.law == "log-uniform":
            drawn: NDArray[np.float64] = self.least * (self.most / self.least) ** u
            return drawn
        normal = NormalDist()
        return np.array([math.exp(self.spread * normal.inv_cdf(max(x, 2.0**-54))) for x in u])


Part = float | tuple[float, ...] | Law


@dataclass(frozen=True)
class DeviceClass:
    """A kind of device: its share of all clients, and its parts of the rates."""

    name: str
    share: float
    speed: float = 1.0
    link: float = 1.0

    def __post_init__(self) -> None:
        for name in ("share", "speed", "link"):
            _above_0(f"devices.classes.{self.name}.{name}", getattr(self, name))


@dataclass(frozen=True)
class DrawnDevices:
    """Each client's speed and link, and the name of its class ("" without classes)."""

    speed: NDArray[np.float64]
    link: NDArray[np.float64]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Devices:
    """Speeds and links of the clients; see the head of this file."""

    speed: Part = 1.0
    link: Part = 1.0
    classes: tuple[DeviceClass, ...] = ()

    def __post_init__(self) -> None:
        for name in ("speed", "link"):
            part = getattr(self, name)
            if isinstance(part, list | np.ndarray):
                part = tuple(float(each) for each in part)
                object.__setattr__(self, name, part)
            if isinstance(part, Law):
                continue
            for client, each in enumerate(part if isinstance(part, tuple) else (part,)):
                of_client = f"[{client}]" if isinstance(part, tuple) else ""
                _above_0(f"devices.{name}{of_client}", each)
        if not self.classes:
            return
        if self.speed != 1.0 or self.link != 1.0:
            raise InputError("devices.speed", self.speed, "speeds and links, or classes: not both")
        names = [own.name for own in self.classes]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise InputError("devices.classes", twice[0], "each class needs its own name")
        total = sum(own.share for own in self.classes)
        if abs(total - 1) > 1e-9:
            raise InputError("devices.classes", total, "the shares of all classes sum to 1")

    @classmethod
    def of_table(cls, table: Mapping[str, Any]) -> Devices:
        """From the table `[devices]` of a profile."""
        _known("devices", table, ("speed", "link", "classes"))
        classes = table.get("classes", [])
        if not isinstance(classes, list) or not all(isinstance(own, dict) for own in classes):
            raise InputError("devices.classes", classes, 'a list: [{name = "phone", share = 1.0}]')
        return cls(
            _part("devices.speed", table.get("speed", 1.0)),
            _part("devices.link", table.get("link", 1.0)),
            tuple(_class_of(number, own) for number, own in enumerate(classes)),
        )

    def draw(self, clients: int, seed: int) -> DrawnDevices:
        """The devices of `clients` clients."""
        if self.classes:
            return self._by_class(clients, seed)
        speed = _drawn("devices.speed", self.speed, clients, seed, SPEED)
        link = _drawn("devices.link", self.link, clients, seed, LINK)
        return DrawnDevices(speed, link, ("",) * clients)

    def _by_class(self, clients: int, seed: int) -> DrawnDevices:
        ends = np.rint(np.cumsum([own.share for own in self.classes]) * clients).astype(int)
        kinds = np.searchsorted(ends, np.arange(clients), side="right")
        order = np.argsort(numbers_of(seed, CLASS, clients), kind="stable")
        of = np.empty(clients, dtype=int)
        of[order] = np.minimum(kinds, len(self.classes) - 1)
        speed, link = (np.array([getattr(c, n) for c in self.classes]) for n in ("speed", "link"))
        return DrawnDevices(speed[of], link[of], tuple(self.classes[kind].name for kind in of))


def _drawn(field: str, part: Part, clients: int, seed: int, purpose: int) -> NDArray[np.float64]:
    if isinstance(part, Law):
        return part.draw(numbers_of(seed, purpose, clients))
    if isinstance(part, tuple) and len(part) != clients:
        raise InputError(field, list(part), f"one number, or a list of {clients}: one a client")
    return np.broadcast_to(np.asarray(part, dtype=float), (clients,)).copy()


def _part(field: str, value: object) -> Part:
    if isinstance(value, Mapping):
        law = value.get("law")
        if law not in LAWS:
            raise InputError(f"{field}.law", law, closest(str(law), LAWS))
        _known(field, value, ("law", *LAWS[law]))
        for name in LAWS[law]:
            if name not in value:
                raise InputError(f"{field}.{name}", None, f"{law} needs it")
        return Law(law, **{name: _number(f"{field}.{name}", value[name]) for name in LAWS[law]})
    if isinstance(value, list):
        return tuple(_number(f"{field}[{client}]", own) for client, own in enumerate(value))
    return _number(field, value)


def _class_of(number: int, table: Mapping[str, Any]) -> DeviceClass:
    field = f"devices.classes[{number}]"
    _known(field, table, ("name", "share", "speed", "link"))
    if "share" not in table:
        raise InputError(f"{field}.share", None, "a class needs its share of the clients")
    name = table.get("name", f"class {number}")
    if not isinstance(name, str):
        raise InputError(f"{field}.name", name, "a word")
    numbers = {key: _number(f"{field}.{key}", v) for key, v in table.items() if key != "name"}
    return DeviceClass(name, **numbers)


def _known(field: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key, value in table.items():
        if key not in known:
            raise InputError(f"{field}.{key}", value, f"unknown key; {closest(key, known)}")


def _number(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(field, value, "a number")
    return float(value)


def _above_0(field: str, value: object) -> None:
    if not (math.isfinite(_number(field, value)) and _number(field, value) > 0):
        raise InputError(field, value, "a finite number above 0: a device that stands still is off")
