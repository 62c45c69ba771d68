"""Settings as they come and go: a name, a table or an object in, what JSON and TOML can have out.

Every type here is that of a field of `Settings`, with the check of what a user gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, PlainValidator

from sdfeel.algorithm.methods.attacks import Attacks
from sdfeel.algorithm.methods.averaging import RULES, AveragingRule, GivenRule, Rule
from sdfeel.algorithm.methods.codecs import CODECS, WAYS, Codec, codec_table, codecs_by_way
from sdfeel.algorithm.methods.corrections import CORRECTIONS, Correction
from sdfeel.algorithm.methods.exchanges import EXCHANGES, Exchange
from sdfeel.algorithm.methods.method import Method
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, Optimizer
from sdfeel.algorithm.methods.rates import RATES, Constant, Rate, ShapedRate, rate_of
from sdfeel.algorithm.methods.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from sdfeel.algorithm.paces import PACES, Pace
from sdfeel.algorithm.schedule import Schedule
from sdfeel.algorithm.schemes import SCHEMES, Scheme
from sdfeel.clock import LatencyProfile, load_profile, profile_names, profile_of, profile_table
from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS, Averager, Builder, MatrixAverager
from sdfeel.tables import choice, from_table, name_of, needed_for, to_table
from sdfeel.validation import Anything, real, whole


def _scheme(value: Any) -> Scheme:
    """A name of the table, or a row of the user's."""
    if isinstance(value, Scheme):
        return value
    if not isinstance(value, str) or value not in SCHEMES:
        if isinstance(value, str) and value.lower() in NOT_SCHEMES:
            raise InputError("scheme", value, NOT_SCHEMES[value.lower()])
        raise InputError("scheme", value, closest(str(value), SCHEMES))
    return SCHEMES[value]


# What others call a scheme and is something else here.
NOT_SCHEMES = {
    "fedprox": 'is an optimizer here: scheme="fedavg", optimizer=sdfeel.SGD(prox=0.01)',
    **{
        name: f'is a server_optimizer here: scheme="fedavg", server_optimizer="{name}"'
        for name in SERVER_OPTIMIZERS
    },
    "scaffold": 'is a correction here: scheme="fedavg", correction="clients"',
    "mtgc": 'is a correction here: scheme="hierfavg", correction="mtgc"',
    "feddyn": "is a method: see examples/methods/feddyn.py",
    "fednova": "is a method: see examples/methods/fednova.py",
    "ditto": "is a method: see examples/methods/ditto.py",
}


def _schedule(value: Any) -> Schedule:
    if isinstance(value, Schedule):
        return value
    if value is None:
        return Schedule()
    if not isinstance(value, Mapping):
        raise InputError("schedule", value, "such as Schedule(tau1=2, tau2=1, alpha=5)")
    known = [*vars(Schedule()), "participation"]  # a file has it here, and it was taken out
    for key in value:
        if key not in known:
            raise InputError(f"schedule.{key}", value[key], f"unknown key; {closest(key, known)}")
    if "participation" in value:
        remedy = "is an argument of its own: participation=0.5"
        raise InputError("schedule.participation", value["participation"], remedy)
    return Schedule(**value)


def _rate(value: Any) -> Rate:
    """A number, an object, a function; or the table that `lr` and `rate` of a file make."""
    if not isinstance(value, Mapping):
        return rate_of(value)
    Constant(value.get("eta", Constant().eta))  # or the mistake is `lr`, whatever the shape
    rate: Rate = from_table("rate", value, RATES)
    return rate


def _codecs(value: Any) -> dict[str, Codec]:
    """A codec by way: a name, a table with its settings, or an object."""
    if not isinstance(value, Mapping | None):
        raise InputError("codecs", value, 'a codec by way, such as {"up": "int8"}')
    given = value or {}
    for way in given:
        if way not in WAYS:
            raise InputError("codecs", way, f"a way that models take; {closest(way, WAYS)}")
    check = {way: choice(f"codecs.{way}", Codec, CODECS) for way in given}
    return codecs_by_way({way: check[way](codec) for way, codec in given.items()})


def _methods(value: Any) -> tuple[Method, ...]:
    listed = [value] if isinstance(value, Method) else value
    if not isinstance(listed, Sequence) or not all(isinstance(each, Method) for each in listed):
        remedy = "a list of objects of your subclasses of sdfeel.Method; in a file import paths"
        raise InputError("methods", value, remedy)
    return tuple(listed)


def _profile(value: Any) -> Any:
    """A table is checked, and kept as it is."""
    if isinstance(value, Mapping):
        return profile_table(profile_of(value))
    if not isinstance(value, str | Path | LatencyProfile):
        raise InputError(
            "profile", value, "a name, the path of a .toml file or its table as a dict"
        )
    return value


def _averager(value: Any) -> Any:
    """A name, an object or a function; a table; a matrix, as lists in a file."""
    if isinstance(value, Mapping) or (isinstance(value, str) and value in EXCHANGES):
        return choice("averager", Exchange, EXCHANGES)(value)
    if isinstance(value, str) and value not in AVERAGERS:
        raise InputError("averager", value, closest(value, [*AVERAGERS, *EXCHANGES]))
    is_known = isinstance(value, str | Averager) or callable(value)
    return value if is_known else MatrixAverager.of(value)


def _attacks(value: Any) -> Attacks | None:
    """Who lies and how; as a table, too. None where nobody does."""
    if isinstance(value, Mapping):
        for key in value:
            if key not in ("clients", "servers"):
                remedy = f"unknown key; {closest(str(key), ('clients', 'servers'))}"
                raise InputError(f"attacks.{key}", value[key], remedy)
        value = Attacks(**value)
    if not isinstance(value, Attacks | None):
        raise InputError("attacks", value, 'such as {"servers": {1: "dissensus"}}')
    return value if value is not None and (value.clients or value.servers) else None


def _app(value: Any) -> Any:
    """A Flower app or its import path; a file says which kind of trainer it names."""
    if isinstance(value, bool | int | float | list | dict):
        raise InputError("trainer", value, "a Flower app, or its path: flower:MODULE:APP")
    if not isinstance(value, str):
        return value
    path = value.removeprefix("flower:")
    if not all(path.partition(":")[::2]):
        remedy = "flower:MODULE:APP, such as flower:my_app.client_app:app"
        raise InputError("trainer", value, remedy)
    return path


def _device(value: Any) -> str:
    if not isinstance(value, str | torch.device):
        raise InputError("", value, "a name, such as cpu or cuda, or a torch.device")
    return str(value)


def _config(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InputError("", value, 'a table of names and values, such as {"local-epochs": 1}')
    return dict(value)


def _nodes(value: Any) -> Any:
    return list(value) if isinstance(value, list | tuple) else _config(value)


# Settings that are objects of a table: their kind, the table, and the word for none of them.
TABLES: dict[str, tuple[type, Mapping[str, type], str | None]] = {
    "optimizer": (Optimizer, OPTIMIZERS, None),
    "server_optimizer": (ServerOptimizer, SERVER_OPTIMIZERS, "mean"),
    "averaging_rule": (AveragingRule, dict.fromkeys(RULES, Rule), "mean"),
    "correction": (Method, dict.fromkeys(CORRECTIONS, Correction), "none"),
    "pace": (Pace, PACES, None),
}


# What a file has to set beside the name: a pace of a star goes with a scheme that is one.
BESIDE = {
    name: f"scheme = {scheme.name!r}"
    for name, pace in PACES.items()
    for scheme in SCHEMES.values()
    if type(scheme.pace) is pace
}


def _of_table(name: str, **more: Any) -> PlainValidator:
    kind, known, none = TABLES[name]
    return PlainValidator(choice(name, kind, known, none=none, beside=BESIDE, **more))


def with_its_table(key: str) -> str:
    """Say what a key of a table needs that its default does not have: momentum an optimizer's."""
    section, _, setting = key.partition(".")
    if section not in TABLES or setting == "name":
        return ""
    _, known, none = TABLES[section]
    needed = needed_for(section, setting, known, none or next(iter(known)), beside=BESIDE)
    return f", with {needed}" if needed else ""


Probability = Annotated[float, real(lambda x: 0 < x <= 1, "a probability in (0, 1]")]
Above0 = Annotated[float, real(lambda x: x > 0, "simulated seconds, above 0")]
Seconds = Annotated[float, real(lambda x: 0 <= x < math.inf, "seconds, not below 0")]
Samples = Annotated[int, whole(1, remedy="at least 1, or None for all")]
AnyScheme = Annotated[Scheme, PlainValidator(_scheme)]
AnySchedule = Annotated[Schedule, PlainValidator(_schedule)]
AnyAverager = Annotated[str | Averager | Builder, PlainValidator(_averager)]
AnyAveragingRule = Annotated[AveragingRule | None, _of_table("averaging_rule", function=GivenRule)]
AnyServerOptimizer = Annotated[ServerOptimizer | None, _of_table("server_optimizer")]
AnyOptimizer = Annotated[Optimizer, _of_table("optimizer")]
AnyRate = Annotated[Rate, PlainValidator(_rate)]
AnyPace = Annotated[Pace, _of_table("pace")]
AnyCorrection = Annotated[Method | None, _of_table("correction", default="two-level")]
AnyProfile = Annotated[Any, PlainValidator(_profile)]
AnyApp = Annotated[Anything, PlainValidator(_app)]
AnyDevice = Annotated[str, BeforeValidator(_device)]
Codecs = Annotated[Mapping[str, Codec], PlainValidator(_codecs)]
AnyAttacks = Annotated[Attacks | None, PlainValidator(_attacks)]
Methods = Annotated[Sequence[Method], PlainValidator(_methods)]
Values = Annotated[Mapping[str, Any], PlainValidator(_config)]
ValuesOfNodes = Annotated[Mapping[str, Any] | Sequence[Any], PlainValidator(_nodes)]


def plain(name: str, value: Any) -> Any:
    """The value of the setting `name`, as JSON and TOML can have it."""
    if name in TABLES:
        _, known, none = TABLES[name]
        if value is None:
            return {"name": none}
        table = to_table(value, known)
        return table | {"name": value.name} if type(value) in (Rule, Correction) else table
    if name in PLAIN and value is not None:
        return PLAIN[name](value)
    if isinstance(value, Exchange) and type(value) in EXCHANGES.values():
        return to_table(value, EXCHANGES)
    if isinstance(value, LatencyProfile):
        is_ours = value.name in profile_names() and load_profile(value.name) == value
        value = value.name if is_ours else profile_table(value)
    elif isinstance(value, ShapedRate):
        value = value.eta
    elif isinstance(value, MatrixAverager):
        value = [list(row) for row in value.rows]
    elif isinstance(value, Schedule):
        value = {n: name_of(v) if callable(v) else v for n, v in vars(value).items()}
    elif isinstance(value, Scheme | Averager):
        value = value.name
    elif value == math.inf:
        value = None
    is_known = isinstance(value, int | float | str | bool | dict | list | None)
    return value if is_known else name_of(value)


# Settings that are no objects of a table, and what JSON and TOML have of them.
PLAIN: dict[str, Callable[[Any], Any]] = {
    "codecs": lambda codecs: {way: codec_table(codec) for way, codec in codecs.items()},
    "methods": lambda methods: [name_of(method) for method in methods],
    "attacks": lambda attacks: attacks.table(),
    "flower": lambda app: f"flower:{app if isinstance(app, str) else name_of(app)}",
}
